/* Copyright (C) the limit_sliding authors */

#include "redis/sentinel.hpp"

#include <hiredis/hiredis.h>

#include "ngx/array.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

namespace {

/* Milliseconds between looks at the master. */
constexpr ngx_msec_t kWatchInterval = 1000;

SentinelNode &sentinel_node(Node &node) { return static_cast<SentinelNode &>(node); }

/* Turns to the next sentinel; one that fails is tried last. */
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

    std::string_view port = reply->strings[1];
    if (reply->type != REDIS_REPLY_ARRAY || reply->n != 2
        || !node.master.set(reply->strings[0], ngx_atoi(bytes(port), port.size()))) {
        node.blame(*reply);
        return;
    }

    node.found = true;
}

bool greet(Node &greeted) {
    SentinelNode &node = sentinel_node(greeted);
    if (!node.finding) { return node.greet_server(); }

    std::string_view args[]
        = {"SENTINEL", "get-master-addr-by-name", view(node.settings->sentinel.master)};

    return node.greet_with(node.settings->sentinel.credentials)
           && node.greet(create_call(master_named), args);
}

/* Closes the watched node if it has another master than the watching one. */
void compare(SentinelNode &watching) {
    SentinelNode &node = *watching.watched;
    if (node.is_ready() && view(node.master.text) != view(watching.master.text)) {
        node.fail(0, "sentinel names another master");
    }

    watching.close();
}

/* Leaves the sentinel for the master that it has named. */
bool drained(Node &answered) {
    SentinelNode &node = sentinel_node(answered);
    if (!node.finding || !node.found) { return false; }

    if (node.watched != nullptr) {
        compare(node);
        return true;
    }

    node.finding = false;
    node.role = nullptr;
    node.endpoint = &node.master;
    node.reconnect();
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
