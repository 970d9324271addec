/* Copyright (C) the limit_sliding authors */

#include "redis/topology/sentinel.hpp"

#include <hiredis/hiredis.h>

#include "ngx/containers.hpp"
#include "ngx/strings.hpp"
#include "redis/shared/breaker.hpp"

namespace limit_sliding {

namespace {

/* Time in ms between checks of the master. */
constexpr ngx_msec_t kWatchInterval = 1000;

SentinelNode &sentinel_node(Node &node) { return static_cast<SentinelNode &>(node); }

/* Returns the node whose master this node finds. */
SentinelNode &user_of(SentinelNode &node) { return node.watched != nullptr ? *node.watched : node; }

/* Returns true if the master that was named last must be used.  One sentinel is enough if it
 * names the present master, if there is no other, or after kBreakerFailures failures; and for a
 * first master if there are only two sentinels, or after ROLE has refuted another master. */
bool is_believed(SentinelNode &node) {
    const SentinelNode &user = user_of(node);
    const size_t nsentinels = node.settings->servers.size();
    return node.named.id() == user.master.id() || node.votes > 1 || nsentinels == 1
           || node.failures >= kBreakerFailures
           || (user.master.port == 0 && (nsentinels == 2 || user.refuted));
}

/* Sets the endpoint to the next sentinel; a sentinel that failed is tried again last. */
bool next_sentinel(Node &closed, bool first) {
    SentinelNode &node = sentinel_node(closed);
    const Array<Server> &sentinels = node.settings->servers;
    if (first) {
        node.tries = 0;
    } else if (!node.finding || node.tries == sentinels.size() || !node.has_time()) {
        return false;
    }

    node.finding = true;
    node.found = false;
    node.tries++;
    node.role = "sentinel";
    node.server.set(sentinels[node.next++ % sentinels.size()]);
    node.endpoint = &node.server;
    return true;
}

void master_named(Node &from, Call &call, Reply *reply) {
    SentinelNode &node = sentinel_node(from);
    ngx_free(&call);
    if (reply == nullptr) { return; }

    if (reply->type == REDIS_REPLY_NIL) {
        node.set_broken("sentinel knows no such master");
        return;
    }

    const uint64_t last = node.named.id();
    std::string_view port = reply->string(1);
    if (reply->type != REDIS_REPLY_ARRAY || reply->n != 2
        || !node.named.set(reply->string(0), ngx_atoi(bytes(port), port.size()))) {
        node.blame(*reply);
        return;
    }

    node.found = true;
    const size_t voter = (node.next - 1) % node.settings->servers.size();
    if (node.named.id() != last) {
        node.votes = 1;
    } else if (node.watched == nullptr || voter != node.voter) {
        /* a watching node has a master, so only votes of different sentinels count */
        node.votes++;
    }

    node.voter = voter;
}

/* Accepts a master, and a server that denies ROLE to the user.  Refutes another server, and lets
 * the next sentinel be asked. */
void role_received(Node &from, Call &call, Reply *reply) {
    ngx_free(&call);
    if (reply == nullptr) { return; }

    if (reply->type == REDIS_REPLY_ERROR
        || (reply->type == REDIS_REPLY_ARRAY && reply->string(0) == "master")) {
        from.greeted();
        return;
    }

    SentinelNode &node = sentinel_node(from);
    node.master.port = 0;
    node.refuted = true;
    node.finding = true;
    node.set_broken("sentinel names a server that is no master");
}

bool greet(Node &greeted) {
    SentinelNode &node = sentinel_node(greeted);
    if (node.finding) {
        const Arg args[]
            = {"SENTINEL", "get-master-addr-by-name", view(node.settings->sentinel.master)};

        return node.greet_with(node.settings->sentinel.credentials)
               && node.greet(create_call(master_named), args);
    }

    if (!node.greet_server()) { return false; }

    constexpr Arg kRole[] = {"ROLE"};
    static TextSink replicas = {[](TextSink &, std::string_view) {}};
    Call *call = create_call(role_received);
    if (call != nullptr) { call->texts = &replicas; }
    return node.greet(call, kRole);
}

/* Leaves a sentinel that has named a master, for this master or for another sentinel. */
bool drained(Node &answered) {
    SentinelNode &node = sentinel_node(answered);
    if (!node.finding || !node.found) { return false; }

    if (!is_believed(node)) {
        if (next_sentinel(node, false)) {
            node.reconnect();
        } else {
            node.fail(0, "sentinels name different masters");
        }
        return true;
    }

    SentinelNode &user = user_of(node);
    const bool is_new = node.named.id() != user.master.id();
    if (is_new) {
        (void)user.master.set(view(node.named.host), node.named.port);
        user.refuted = false;
    }

    if (&user == &node) {
        node.finding = false;
        node.role = nullptr;
        node.endpoint = &node.master;
        node.reconnect();
        return true;
    }

    if (is_new && user.is_ready()) {
        user.fail(0, "sentinel names another master");
    } else if (is_new && !user.is_closed() && !user.finding) {
        user.reconnect();
    }

    node.close();
    return true;
}

const NodeRole sentinel_role = {greet, next_sentinel, drained, nullptr};

} // namespace

SentinelNode *create_sentinel_node(const NodeContext &context, SentinelNode *watched) {
    auto *node = create_on_heap<SentinelNode>();
    if (node != nullptr) {
        node->init(context, &sentinel_role);
        node->watched = watched;
    }
    return node;
}

void watch_master(SentinelNode &watching) {
    if (watching.is_closed() && ngx_current_msec - watching.looked >= kWatchInterval) {
        watching.looked = ngx_current_msec;
        (void)watching.open();
    }
}

} // namespace limit_sliding
