/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/breaker_probe.hpp"

#include <algorithm>

#include "redis/start.hpp"
#include "redis/waiters.hpp"

namespace limit_sliding {

namespace {

/* How often to look.  At a closed breaker: before a probe can be due, if it
 * opens right after that.  At an open one: another worker's probe may have
 * closed it. */
constexpr ngx_msec_t kLookMs = kBreakerIntervalMs * 3 / 4;
constexpr ngx_msec_int_t kLookOpenMs = 100;

/*
 * Asks for one key of nobody's, and so finds out whether Redis takes writes:
 * the breaker learns of it as of any other call.  Each time another key, and so
 * perhaps another node of a cluster.
 */
void send_probe(Redis &redis)
{
    static ngx_uint_t n;

    if (start_client(redis) != NGX_OK || find_ask(redis, 0)) {
        return;
    }

    Nodes &nodes = redis.client.nodes;
    u_char key[sizeof("probe") + NGX_INT_T_LEN];
    u_char *end = ngx_sprintf(key, "probe%ui", nodes.is_cluster() ? n++ : 0);

    RemoteClaim remote{};
    remote.zone = &redis.probe_zone;
    remote.key = {static_cast<size_t>(end - key), key};

    Claim claim{};
    claim.policy = &redis.probe_policy;
    claim.limit = kLimitMax;
    claim.cost = 1;
    claim.remote = &remote;

    Ask *ask = create_ask(redis, &claim, 1);
    if (ask == nullptr) {
        return;
    }

    Node *to = nodes.route(ask->slot);
    if (to == nullptr) {
        ngx_free(ask);
        return;
    }

    /* probes come at the breaker's pace */
    to->forgive();

    share_ask(*ask, 0);
    join_ask(*ask, nullptr);
}

/* How long to wait until the breaker is to be looked at again. */
ngx_msec_t look_at_breaker(Redis &redis)
{
    const Breaker *breaker = &redis.shared->breaker;
    Nodes &nodes = redis.client.nodes;

    switch (breaker_check(&redis.shared->breaker, ngx_current_msec)) {
    case BreakerState::kClosed:
        return nodes.is_cluster() ? std::min(kLookMs, nodes.retry()) : kLookMs;

    case BreakerState::kProbe:
        send_probe(redis);
        break;

    case BreakerState::kOpen:
        break;
    }

    auto left = static_cast<ngx_msec_int_t>(breaker_probe_ms(breaker)
                                            - ngx_current_msec);

    /* a worker whose clock is behind shall not spin */
    return std::clamp<ngx_msec_int_t>(left, 1, kLookOpenMs);
}

void breaker_handler(ngx_event_t *ev)
{
    if (!ngx_exiting) {
        ngx_add_timer(ev, look_at_breaker(*static_cast<Redis *>(ev->data)));
    }
}

} // namespace

void start_probes(Redis &redis)
{
    ngx_event_t *ev = &redis.client.look;

    ev->handler = breaker_handler;
    ev->data = &redis;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    /* workers look at different times */
    ngx_add_timer(ev, 1 + ngx_random() % kLookMs);
}

} // namespace limit_sliding
