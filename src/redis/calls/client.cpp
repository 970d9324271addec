/* Copyright (C) the limit_sliding authors */

#include "redis/calls/client.hpp"

#include <algorithm>

#include "ngx/event.hpp"
#include "redis/calls/deliver_reply.hpp"
#include "redis/calls/script_call.hpp"
#include "redis/calls/settlement.hpp"
#include "redis/calls/split_ask.hpp"
#include "redis/shared/breaker.hpp"

namespace limit_sliding {

namespace {

/* How often to look at the breaker.  At a closed one: before a probe can be
 * due, if it opens right after that.  At an open one: another worker's probe
 * may have closed it. */
constexpr ngx_msec_t kLookMs = kBreakerIntervalMs * 3 / 4;
constexpr ngx_msec_int_t kLookOpenMs = 100;

/* Calls of asks that may be under way before others wait to be filled: while Redis
 * is busy one call of many asks costs it less than many calls. */
constexpr auto kCallsUnderWay = 4;

/* The same for calls that carry nothing but settlements, so that a request need
 * not wait for their ends. */
constexpr auto kSettlementCalls = 2;

/* A server that reads so little gets no more calls until the next reply. Else a server that
 * hangs would have its calls fill the memory of the worker, in bytes. */
constexpr size_t kUnsentMax = 256 << 10;

/* Makes asks due where their slots are by now. */
void reroute(Node &node) {
    for (Ask &ask : due_at(node)) {
        Node *to = node.redis->client.nodes.route(ask.slot);
        if (to != &node && !ask.asking) {
            remove_due(ask);
            make_due(ask, *to);
        }
    }
}

/* Moves the waiters and units of the ask to a call.  Units without a waiter come last.
 * Returns how many values the reply has beyond the algorithms' values. */
size_t take_waiters(Ask &ask) {
    ngx_uint_t turn = 0;
    while (!ask.waiters.empty()) {
        Waiter &waiter = ask.waiters.pop_front();
        ask.asked.push_back(waiter);
        waiter.asked = true;
        waiter.turn = turn++;
    }

    if (ask.hops == 0) { ask.since = ngx_current_msec; }

    ask.asked_units = ask.units;
    ask.units = 0;
    ask.in_call = true;
    take_units(ask);
    return take_leases(ask);
}

/* Puts a call of due asks into the node's buffer.  Returns false if there is no memory. */
bool send_call(Node &node) {
    auto *call = create_call<AskCall>(script_answered);
    if (call == nullptr) { return false; }

    node.nask_calls++;
    call->asks.init();
    for (Ask &ask : due_at(node)) {
        if (!call_takes(*call, ask)) { break; }

        remove_due(ask);
        call->asks.push_back(ask);
        call->numbers += take_waiters(ask);
        call->asking = ask.asking;
        ask.asking = false;
    }

    bool called = call->command ? call_key_command(node, *call) : call_script(node, *call);
    if (!called) { call->handler(node, *call, nullptr); }
    return called;
}

/* Fails the due asks that cannot be sent to another node. */
void fail_due(Node &node) {
    for (Ask &ask : due_at(node)) {
        remove_due(ask);
        if (!resend_due(ask, node)) { fail_ask(ask); }
    }

    while (!node.errands.empty()) {
        Errand &errand = node.errands.pop_front();
        errand.fail(errand, node);
    }
}

void unreachable(Node &node) {
    add(&node.redis->client.calls->failed, 1);
    fail_due(node);
}

void run_errands(Node &node) {
    while (!node.errands.empty()) {
        Errand &errand = node.errands.pop_front();
        errand.run(errand, node);
    }
}

/* Returns true if a call of due asks is to be sent, though other calls are under way. */
bool is_call_due(const Node &node) {
    if (node.nask_calls != 0 && node.unsent() >= kUnsentMax) { return false; }

    size_t most = node.ndue == node.nsettlements ? kSettlementCalls : kCallsUnderWay;

    return node.ndue >= kAsksPerCall
           || (node.ndue && (node.redis->client.nodes.is_cluster() || node.nask_calls < most));
}

/* Sends the due asks. */
void flush_due(Node &node) {
    Redis &redis = *node.redis;
    Nodes &nodes = redis.client.nodes;
    /* this turn of the event loop may have taken long */
    ngx_time_update();
    begin_waits(redis.client, redis.settings.timeout);
    if (nodes.is_cluster()) { reroute(node); }

    if (!node.is_wanted() && node.unsent() == 0) { return; }

    ngx_int_t rc = node.open();
    if (rc == NGX_AGAIN) { return; }

    if (rc != NGX_OK) {
        fail_due(node);
        return;
    }

    while (is_call_due(node)) {
        if (!send_call(node)) {
            node.fail(0, "no memory");
            return;
        }
    }

    if (nodes.are_known()) { run_errands(node); }

    node.send();
    nodes.sent();
}

/* Makes this worker's part of a Redis; connections are made later. */
bool make_client(Redis &redis) {
    static constexpr ClientEvents kEvents = {flush_due, unreachable, node_failed};
    Client &client = redis.client;
    ngx_rbtree_init(&client.asks, &client.sentinel, ngx_rbtree_insert_value);
    client.joined.init();
    client.waiting.init();
    init_settling(client);

    /* not to be cancelled: an exiting worker still answers its requests */
    init_event<end_waits>(client.deadline, client);

    client.calls = &redis.shared->calls[ngx_process_slot % std::size(redis.shared->calls)];
    return client.nodes.start(&redis, &redis.settings, &redis.shared->addresses, &kEvents);
}

} // namespace

bool start_client(Redis &redis) { return redis.client.nodes.is_started() || make_client(redis); }

namespace {

/* Asks for one key of nobody's, and so finds out whether Redis takes writes:
 * the breaker learns of it as of any other call.  Each time another key, and so
 * perhaps another node of a cluster. */
void send_probe(Redis &redis) {
    if (!start_client(redis) || find_ask(redis, 0)) { return; }

    Nodes &nodes = redis.client.nodes;
    u_char key[sizeof("probe") + NGX_INT_T_LEN];
    u_char *end = ngx_sprintf(key, "probe%ui", nodes.is_cluster() ? redis.client.probes++ : 0);

    RemoteClaim remote{};
    remote.zone = &redis.probe_zone;
    remote.key = {static_cast<size_t>(end - key), key};

    Claim claim{};
    claim.policy = &redis.probe_policy;
    claim.limit = kNarrowMax;
    claim.cost = 1;
    claim.remote = &remote;

    Ask *ask = create_ask(redis, {&claim, 1});
    if (ask == nullptr) { return; }

    /* the node may be asked at once: probes come at the breaker's pace */
    nodes.route(ask->slot)->failures = 0;
    share_ask(*ask, 0);
    join_ask(*ask, nullptr);
}

/* Returns how long to wait until the breaker is to be looked at again. */
ngx_msec_t look_at_breaker(Redis &redis) {
    Breaker *breaker = &redis.shared->breaker;
    Nodes &nodes = redis.client.nodes;
    const BreakerState state = breaker->check(ngx_current_msec);
    if (state == BreakerState::kClosed) {
        if (nodes.is_cluster()) { return std::min(kLookMs, nodes.cluster->retry()); }

        /* else a worker without requests would not learn that Redis is dead, or back */
        if (nodes.is_unreachable()) { send_probe(redis); }
        return kLookMs;
    }

    if (state == BreakerState::kProbe) { send_probe(redis); }

    auto left = static_cast<ngx_msec_int_t>(breaker->probe_ms() - ngx_current_msec);
    /* a worker with a clock behind shall not spin */
    return std::clamp<ngx_msec_int_t>(left, 1, kLookOpenMs);
}

void look_again(Redis &redis) {
    if (ngx_exiting) {
        if (redis.client.notices.hurry != nullptr) { redis.client.notices.hurry(redis.client); }

        return;
    }

    ngx_add_timer(&redis.client.look, look_at_breaker(redis));
}

} // namespace

/* The end of an outage is found out by timer, so that the first requests after
 * it are decided by Redis, however long none came.  Every worker looks at the
 * breaker, which is in shared memory: whoever has opened it may be dead, and a
 * worker may be younger than the outage.  The breaker lets one of them send a
 * probe. */
void redis_enter(Redis *redis) {
    if (redis->shared == nullptr) {
        /* no zone uses it */
        return;
    }

    /* its default is set once all of the configuration was read */
    void *core = ngx_get_conf(ngx_cycle->conf_ctx, ngx_core_module);
    redis->settings.clock_age_ms = static_cast<ngx_core_conf_t *>(core)->timer_resolution;

    ngx_event_t &look = redis->client.look;
    init_event<look_again>(look, *redis);
    look.cancelable = 1; /* a worker that is to exit does not wait for it */

    /* workers look at different times */
    ngx_add_timer(&look, 1 + ngx_random() % kLookMs);
}

void redis_exit(Redis *redis) {
    end_settling(redis->client);
    if (redis->client.notices.end != nullptr) { redis->client.notices.end(redis->client); }

    redis->client.nodes.close();
}

bool can_ask(Redis &redis) { return start_client(redis) && !is_away(redis); }

bool ask_redis(Span<Claim> claims, Waiter *waiter) {
    for (const Claim &claim : claims) {
        if (!start_client(*remote_of(claim).zone->redis)) { return false; }
    }

    Redis &redis = *remote_of(claims[0]).zone->redis;
    if (waiter) { waiter->claims = claims; }

    const Claim &last = claims.end()[-1];
    if (remote_of(last).zone->redis != &redis) { return ask_in_pieces(claims, waiter); }

    Ask *ask = get_ask(redis, claims);
    if (ask == nullptr) { return false; }

    if (ask->slot == kMixedSlots) { return ask_in_pieces(*ask, claims, waiter); }

    join_ask(*ask, waiter);
    return true;
}

void settle_redis(const Claim &claim, int64_t difference) {
    Redis &redis = *remote_of(claim).zone->redis;
    if (remote_of(claim).source == Source::kFallback) {
        /* it does not know of the claim, and is not told later */
        count_unsettled(redis.client, std::max<int64_t>(difference, 0));
    } else if (start_client(redis)) {
        settle(claim, difference);
    }
}

bool charge_redis(Claim *claim, int64_t cost, Waiter *waiter) {
    Redis &redis = *remote_of(*claim).zone->redis;
    claim->purpose = cost < 0 ? Purpose::kGiveBack : Purpose::kCharge;
    claim->cost = cost < 0 ? -static_cast<uint64_t>(cost) : cost;
    waiter->claims = {claim, 1};
    ask_window(*claim);

    Ask *ask = can_ask(redis) ? create_ask(redis, {claim, 1}) : nullptr;
    if (ask == nullptr || if_worth(*ask) == nullptr) { return false; }

    join_ask(*ask, waiter);
    return true;
}

} // namespace limit_sliding
