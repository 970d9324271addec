/* Copyright (C) the limit_sliding authors */

#include "redis/decisions/client.hpp"

#include <algorithm>

#include "ngx/event.hpp"
#include "redis/shared/breaker.hpp"

namespace limit_sliding {

namespace {

/* The ms between two looks at a closed breaker: if it opens after a look, the next look is before
 * a probe is due. */
constexpr ngx_msec_t kLookMs = kBreakerIntervalMs * 3 / 4;

/* The most ms between two looks at an open breaker, which the probe of another worker may have
 * closed. */
constexpr ngx_msec_int_t kLookOpenMs = 100;

/* Asks for a key that belongs to no zone, to find out whether Redis takes writes: the breaker
 * learns of the result as of any other call.  In a cluster, each probe has another key, and so
 * perhaps another node. */
void send_probe(Redis &redis) {
    if (find_ask(redis, 0) != nullptr) { return; }

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

    Ask *ask = create_ask({&claim, 1}, kDecision);
    if (ask == nullptr) { return; }

    /* the node may be connected to at once, because probes come at the breaker's pace */
    nodes.route(*ask)->failures = 0;
    share_ask(*ask, 0);
    join_ask(*ask, nullptr);
}

/* Looks at the breaker.  Returns the ms until the next look. */
ngx_msec_t look_at_breaker(Redis &redis) {
    Breaker *breaker = &redis.shared->breaker;
    Nodes &nodes = redis.client.nodes;
    const BreakerState state = breaker->check(ngx_current_msec);
    if (state == BreakerState::kClosed) {
        if (nodes.is_cluster()) { return std::min(kLookMs, nodes.cluster->retry()); }

        /* otherwise a worker without requests would not learn that Redis is dead, or back */
        if (nodes.node->is_closed() && nodes.node->attempt_failed) { send_probe(redis); }
        return kLookMs;
    }

    if (state == BreakerState::kProbe) { send_probe(redis); }

    const ngx_msec_int_t left = ms_until(breaker->probe_ms());
    /* a worker must not spin if its clock lags */
    return std::clamp<ngx_msec_int_t>(left, 1, kLookOpenMs);
}

void look_again(Redis &redis) {
    if (!ngx_exiting) {
        ngx_add_timer(&redis.client.look, look_at_breaker(redis));
    } else if (redis.client.notices.hurry != nullptr) {
        redis.client.notices.hurry(redis.client);
    }
}

} // namespace

/* A timer finds the end of an outage, so that Redis decides the first requests after it, however
 * long no requests came.  Every worker looks at the breaker, which is in shared memory: the worker
 * that has opened it may be dead, and a worker may be younger than the outage.  The breaker lets
 * one of them send a probe. */
bool redis_enter(Redis *redis) {
    if (redis->shared == nullptr) { return true; }

    Client &client = redis->client;
    ngx_rbtree_init(&client.asks, &client.sentinel, ngx_rbtree_insert_value);
    client.joined.init();
    client.waiting.init();
    init_settling(client);
    init_sender(client);

    /* the timer is not cancelable, because an exiting worker still answers its requests */
    init_event<end_waits>(client.deadline, client);

    Claim::complete = complete_verdict;
    client.calls = &redis->shared->calls[ngx_process_slot % std::size(redis->shared->calls)];
    if (!client.nodes.start(redis, &redis->settings, &redis->shared->addresses, &kSenderEvents)) {
        return false;
    }

    /* the default is set after all of the configuration was read */
    void *core = ngx_get_conf(ngx_cycle->conf_ctx, ngx_core_module);
    redis->settings.clock_age_ms = static_cast<ngx_core_conf_t *>(core)->timer_resolution;

    init_event<look_again>(client.look, *redis);
    client.look.cancelable = 1; /* an exiting worker does not wait for the timer */

    /* workers look at different times */
    ngx_add_timer(&client.look, 1 + ngx_random() % kLookMs);
    return true;
}

void redis_exit(Redis *redis) {
    end_settling(redis->client);
    if (redis->client.notices.end != nullptr) { redis->client.notices.end(redis->client); }

    redis->client.nodes.close();
}

bool ask_redis(Span<Claim> claims, Waiter *waiter) {
    Redis &redis = *remote_of(claims[0]).zone->redis;
    if (waiter) { waiter->claims = claims; }

    const Claim &last = claims.end()[-1];
    if (remote_of(last).zone->redis != &redis) { return ask_in_pieces(claims, nullptr, waiter); }

    Ask *ask = get_ask(claims, kDecision);
    if (ask == nullptr) { return false; }

    if (ask->slot == kMixedSlots) { return ask_in_pieces(claims, ask, waiter); }

    join_ask(*ask, waiter);
    if (waiter == nullptr) { keep_worker(*ask); }
    return true;
}

bool charge_redis(Claim *claim, int64_t cost, Waiter *waiter) {
    Redis &redis = *remote_of(*claim).zone->redis;
    claim->purpose = cost < 0 ? Purpose::kGiveBack : Purpose::kCharge;
    claim->cost = cost < 0 ? -static_cast<uint64_t>(cost) : cost;
    waiter->claims = {claim, 1};
    ask_window(*claim);

    Ask *ask = is_away(redis) ? nullptr : create_ask({claim, 1}, kDecision);
    if (ask == nullptr || if_worth(*ask) == nullptr) { return false; }

    join_ask(*ask, waiter);
    return true;
}

} // namespace limit_sliding
