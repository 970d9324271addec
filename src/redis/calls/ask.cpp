/* Copyright (C) the limit_sliding authors */

#include "redis/calls/ask.hpp"

#include <algorithm>

#include "ngx/event.hpp"
#include "ngx/strings.hpp"
#include "redis/protocol/claim_hash.hpp"
#include "redis/protocol/key_slot.hpp"

namespace limit_sliding {

namespace {

constexpr size_t kDigestBytes = 20;

/* Longer keys have digests, so that clients cannot fill Redis with the texts of keys. */
constexpr size_t kPlainBytesMax = 65535;

/* Returns true if the text of the key is its name in Redis.  A cluster takes braces with
 * nothing in between for none, and would not keep the key's state and its limit together. */
bool is_plain(const Redis &redis, const RemoteClaim &remote) {
    return remote.is_named
           || (redis.settings.key_format == KeyFormat::kPlain && remote.key.len <= kPlainBytesMax
               && !(redis.client.nodes.is_cluster() && remote.key.data[0] == '}'));
}

/* Writes the name of the claim's key in Redis, and returns its end:
 * "PREFIXZONE:{KEY}". */
u_char *write_key(const RemoteClaim &remote, u_char *p) {
    p = write_name(remote, append(p, view(remote.zone->prefix)));
    *p++ = '}';
    return p;
}

/* Returns an ask with unset parts and with room for `bytes` after them;
 * nullptr: there is no memory. */
Ask *alloc_ask(Redis &redis, size_t nparts, size_t bytes) {
    auto *ask = static_cast<Ask *>(
        ngx_alloc(sizeof(Ask) + nparts * sizeof(AskPart) + bytes, ngx_cycle->log));
    if (ask == nullptr) { return nullptr; }

    *ask = {};
    ask->redis = &redis;
    ask->to = redis.client.nodes.node;
    ask->parts = {reinterpret_cast<AskPart *>(ask + 1), nparts};
    ask->waiters.init();
    ask->asked.init();
    return ask;
}

void unlink(Waiter &waiter) {
    Client &client = waiter.ask->redis->client;
    WaiterList::remove(waiter);
    WaitingList::remove(waiter);
    waiter.ask = nullptr;
    if (client.waiting.empty() && client.joined.empty()) {
        /* a worker that exits need not wait for the timer */
        client.deadline.cancelable = 1;
    }
}

/* Ends a wait that took too long.  A unit that was not asked for yet is not
 * asked for any more: it is decided otherwise. */
void time_out(Waiter &waiter) {
    Ask &ask = *waiter.ask;
    const Redis &redis = *ask.redis;
    ngx_msec_t since = waiter.until - redis.settings.timeout;
    if (!ask.to->is_ready() && static_cast<ngx_msec_int_t>(since - redis.client.failed) >= 0) {
        /* all waiters for one attempt to connect count once */
        node_failed(*ask.to);
        ask.to->attempt_failed = true;
    }

    if (!waiter.asked) { ask.units--; }

    tell_waiter(waiter, Told::kFailed);
    if (ask.units == 0 && !ask.in_call) {
        remove_due(ask);
        ask_done(ask);
    }
}

/* Makes the ask one that was not sent.  Later waiters are behind the others. */
void unask(Ask &ask) {
    while (!ask.asked.empty()) {
        Waiter &waiter = ask.asked.pop_back();
        waiter.asked = false;
        ask.waiters.push_front(waiter);
    }

    ask.units += ask.asked_units - ask.leased_units;
    ask.asked_units = 0;
    ask.leased_units = 0;
    ask.in_call = false;
    if (ask.settles) {
        ask.unsettled = units_of(ask);
        ask.parts[0].claim.cost = 0;
        ask.units = 1;
    }
}

/* Counts units of a settlement that are lost. */
void lose(Ask &ask, uint64_t &units) {
    if (!ask.settles) { return; }

    Client &client = ask.redis->client;
    count_unsettled(client, units);
    client.settling.units -= units;
    units = 0;
}

/* Ends the notice of the ask, if it has one. */
void end_notice(Ask &ask, void (*NoticeEvents::*ended)(Notice &notice)) {
    Notice *notice = ask.notice;
    ask.notice = nullptr;
    if (notice != nullptr) { (notice->events->*ended)(*notice); }
}

/* The settlement is over: the next one becomes due. */
void end_settlement(const Ask &ask) {
    Settling &settling = ask.redis->client.settling;
    settling.nasks--;
    settling.bytes -= waiting_bytes(ask);
    settling.nout--;
    settling.timer.cancelable = settling.nasks == 0;
    if (waiting_of(settling).empty()) { return; }

    settling.nout++;
    make_due(waiting_of(settling).pop_front());
}

} // namespace

void count_unsettled(const Client &client, uint64_t units) {
    if (units) { add(&client.calls->unsettled, units); }
}

void node_answered(Node &node) {
    Redis &redis = *node.redis;
    node.succeeded();
    if (redis.shared->breaker.succeeded()) {
        /* of the same level as the line that it has failed: a log that shows one shows both */
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "limit_sliding redis \"%V\" answers again",
                      &redis.settings.name);
    }
}

void node_failed(Node &node) {
    Redis &redis = *node.redis;
    Client &client = redis.client;
    client.failed = ngx_current_msec;
    if (client.nodes.is_cluster() && client.nodes.cluster->is_alive_without(node)) {
        /* the rest of it is no worse for that */
        return;
    }

    if (redis.shared->breaker.failed(ngx_current_msec, static_cast<uint32_t>(ngx_random()))) {
        add(&client.calls->opened, 1);
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "limit_sliding redis \"%V\" has failed repeatedly, "
                      "\"on_error %s\" applies until it answers again",
                      &redis.settings.name,
                      kOnErrorWords[index_of(redis.settings.on_error)].data());
    }
}

size_t key_bytes(const RemoteClaim &remote) {
    return remote.zone->prefix.len + name_bytes(remote) + 1;
}

size_t name_bytes(const RemoteClaim &remote) {
    return is_plain(*remote.zone->redis, remote) ? remote.key.len : 2 * kDigestBytes;
}

u_char *write_name(const RemoteClaim &remote, u_char *p) {
    if (is_plain(*remote.zone->redis, remote)) { return append(p, view(remote.key)); }

    u_char digest[kDigestBytes];
    ngx_sha1_t sha;
    ngx_sha1_init(&sha);
    ngx_sha1_update(&sha, remote.key.data, remote.key.len);
    ngx_sha1_final(digest, &sha);

    return ngx_hex_dump(p, digest, sizeof(digest));
}

size_t waiting_bytes(const Ask &ask) {
    return sizeof(Ask) + sizeof(AskPart) + ask.parts[0].key.len;
}

/* A hash that two asks share is as unlikely as in the zone's own memory. */
Ask *find_ask(Redis &redis, uint64_t hash) {
    ngx_rbtree_node_t *node = redis.client.asks.root;
    while (node != &redis.client.sentinel) {
        if (node->key == hash) {
            return reinterpret_cast<Ask *>(reinterpret_cast<u_char *>(node) - offsetof(Ask, node));
        }

        node = hash < node->key ? node->left : node->right;
    }
    return nullptr;
}

Ask *create_ask(Redis &redis, Span<Claim> claims, size_t bytes) {
    const Nodes &nodes = redis.client.nodes;
    for (const Claim &claim : claims) {
        bytes += key_bytes(remote_of(claim));
    }

    Ask *ask = alloc_ask(redis, claims.size(), bytes);
    if (ask == nullptr) { return nullptr; }

    auto *p = reinterpret_cast<u_char *>(ask->parts.end());
    for (size_t i = 0; i < claims.size(); i++) {
        const RemoteClaim &remote = remote_of(claims[i]);
        AskPart &part = ask->parts[i];
        const Policy &policy = *claims[i].policy;
        Window window = policy.salt != 0 ? policy.window() : Window{};
        part = {claims[i], remote.zone, window, {}, 0, i};
        part.claim.set_policy(*remote.zone->policy);
        part.pace = remote.pace != 0 ? remote.pace : part.claim.limit;
        part.key.data = p;
        p = write_key(remote, p);
        part.key.len = p - part.key.data;
        part.slot = nodes.is_cluster() ? key_slot(view(part.key)) : 0;

        if (part.slot != ask->parts[0].slot) { ask->slot = kMixedSlots; }
    }

    if (ask->slot != kMixedSlots) { ask->slot = ask->parts[0].slot; }
    return ask;
}

Ask *copy_ask(const Ask &ask, size_t first, size_t nparts) {
    Span<AskPart> parts{&ask.parts[first], nparts};
    size_t bytes = 0;
    for (const AskPart &part : parts) {
        bytes += part.key.len;
    }

    Ask *copy = alloc_ask(*ask.redis, nparts, bytes);
    if (copy == nullptr) { return nullptr; }

    copy->slot = parts[0].slot;
    auto *p = reinterpret_cast<u_char *>(copy->parts.end());
    for (size_t i = 0; i < nparts; i++) {
        copy->parts[i] = parts[i];
        copy->parts[i].key.data = p;
        p = append(p, view(parts[i].key));
    }
    return copy;
}

Ask *if_worth(Ask &ask) {
    if (ask.redis->client.nodes.is_worth(ask.slot)) { return &ask; }

    if (ask.units == 0 && !ask.in_call) { ask_done(ask); }
    return nullptr;
}

Ask *get_ask(Redis &redis, Span<Claim> claims) {
    if (is_away(redis)) { return nullptr; }

    for (Claim &claim : claims) {
        ask_window(claim);
    }

    uint64_t hash = claim_hash(claims.begin(), claims.size());
    Ask *ask = find_ask(redis, hash);
    if (ask == nullptr) {
        ask = create_ask(redis, claims);
        if (ask == nullptr || ask->slot == kMixedSlots) { return ask; }

        share_ask(*ask, hash);
    }
    return if_worth(*ask);
}

void share_ask(Ask &ask, uint64_t hash) {
    ask.shared = true;
    ask.node.key = hash;
    ngx_rbtree_insert(&ask.redis->client.asks, &ask.node);
}

void make_due(Ask &ask, Node &to) {
    ask.to = &to;
    due_at(to).push_back(ask);
    to.ndue++;
    to.nsettlements += ask.settles;

    to.post_flush();
}

void make_due(Ask &ask) { make_due(ask, *ask.redis->client.nodes.route(ask.slot)); }

void remove_due(Ask &ask) {
    AskList::remove(ask);
    ask.to->ndue--;
    ask.to->nsettlements -= ask.settles;
}

void ask_done(Ask &ask) {
    ask.in_call = false;
    ask.hops = 0;
    ask.asking = false;
    if (ask.units) {
        make_due(ask);
        return;
    }

    if (ask.shared) { ngx_rbtree_delete(&ask.redis->client.asks, &ask.node); }

    if (ask.settles) { end_settlement(ask); }

    ngx_free(&ask);
}

void fail_ask(Ask &ask) {
    ask.units = 0;
    fail_waiters(ask.waiters);
    lose(ask, ask.unsettled);
    end_notice(ask, &NoticeEvents::unsent);

    ask_done(ask);
}

void join_ask(Ask &ask, Waiter *waiter) {
    if (ask.units == 0 && !ask.in_call) { make_due(ask); }

    ask.units++;
    if (waiter == nullptr) { return; }

    waiter->ask = &ask;
    waiter->asked = false;
    ask.waiters.push_back(*waiter);
    ask.redis->client.joined.push_back(*waiter);
    ask.to->post_flush();
}

void begin_waits(Client &client, ngx_msec_t timeout) {
    if (client.joined.empty()) { return; }

    while (!client.joined.empty()) {
        Waiter &waiter = client.joined.pop_front();
        waiter.until = ngx_current_msec + timeout;
        client.waiting.push_back(waiter);
    }

    client.deadline.cancelable = 0;
    if (!client.deadline.timer_set) { ngx_add_timer(&client.deadline, timeout); }
}

void tell_waiter(Waiter &waiter, Told told) {
    waiter.told = told;
    unlink(waiter);
    post_event(waiter.event);
}

void fail_waiters(WaiterList &waiters) {
    for (Waiter &waiter : waiters) {
        tell_waiter(waiter, Told::kFailed);
    }
}

void end_waits(Client &client) {
    for (bool has_grace = true; !client.waiting.empty(); has_grace = false) {
        Waiter &first = client.waiting.front();
        auto left = static_cast<ngx_msec_int_t>(first.until - ngx_current_msec);
        if (left > 0) {
            ngx_add_timer(&client.deadline, static_cast<ngx_msec_t>(left));
            return;
        }

        const ngx_msec_t clock_age_ms = first.ask->redis->settings.clock_age_ms;
        if (has_grace && client.grace.is_given(client.deadline, first.until, clock_age_ms)) {
            return;
        }

        time_out(first);
    }
}

void leave_ask(Waiter *waiter) {
    if (waiter->ask) { unlink(*waiter); }

    if (waiter->part) {
        *waiter->part = nullptr;
        waiter->part = nullptr;
    }

    unpost_event(waiter->event);
}

bool put_asking(Node &node) {
    static constexpr Arg kAsking[] = {"ASKING"};
    /* if it is refused, so is the command that follows */
    Call *asking = create_call([](Node &, Call &answered, Reply *) { ngx_free(&answered); });
    if (asking != nullptr && node.command(*asking, kAsking)) { return true; }

    ngx_free(asking);
    return false;
}

bool put_call(Node &node, AskCall &call, Span<const Arg> args) {
    return (!call.asking || put_asking(node)) && node.command(call, args);
}

void fail_call(Node &node, AskCall &call) {
    add(&node.redis->client.calls->failed, 1);
    while (!call.asks.empty()) {
        Ask &ask = call.asks.pop_front();
        fail_waiters(ask.asked);
        lose(ask, ask.parts[0].claim.cost);
        end_notice(ask, &NoticeEvents::failed);

        ask_done(ask);
    }

    end_call(node, call);
}

void end_call(Node &node, AskCall &call) {
    ngx_free(&call);
    node.nask_calls--;
    if (node.ndue) { node.post_flush(); }
}

bool resend_call(Node &node, AskCall &call, Reply &reply) {
    Redis &redis = *node.redis;
    if (!redis.client.nodes.is_cluster()) { return false; }

    /* in a cluster a call has one ask */
    Ask &ask = call.asks.front();
    bool asking;
    Node *to = redis.client.nodes.cluster->redirect(node, ask.slot, reply, &asking);
    if (to == nullptr || ask.hops >= kHopsMax
        || ngx_current_msec - ask.since >= redis.settings.timeout) {
        return false;
    }

    AskList::remove(ask);
    end_call(node, call);
    unask(ask);
    ask.hops++;
    ask.asking = asking;
    make_due(ask, *to);
    return true;
}

bool resend_due(Ask &ask, Node &node) {
    Nodes &nodes = node.redis->client.nodes;
    if (!nodes.is_cluster() || ask.asking || ask.hops >= kHopsMax) { return false; }

    Node *to = nodes.route(ask.slot);
    if (to == &node || !to->is_usable()) { return false; }

    if (ask.hops++ == 0) { ask.since = ngx_current_msec; }

    make_due(ask, *to);
    return true;
}

} // namespace limit_sliding
