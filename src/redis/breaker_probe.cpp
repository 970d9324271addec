
/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * The end of an outage is found out by timer, so that the first requests after
 * it are decided by Redis, however long none came.  Every worker looks at the
 * breaker, which is in shared memory: whoever has opened it may be dead, and a
 * worker may be younger than the outage.  The breaker lets one of them send a
 * probe.
 */

#include "ngx/ngx.hpp"
#include "redis/client.hpp"

namespace limit_sliding {

/* How often to look, in milliseconds.  At a closed breaker: before a probe can
 * be due, if it opens right after that.  At an open one: another worker's probe
 * may have closed it. */

constexpr auto kLook = kBreakerIntervalMs * 3 / 4;
constexpr auto kLookOpen = 100;

static void breaker_handler(ngx_event_t *ev);
static ngx_msec_t until_probe(Redis *redis);
static void send_probe(Redis *redis);

/* Workers look at different times.  The timer is one that a worker which is to
 * exit does not wait for. */

void redis_enter(Redis *redis)
{
    ngx_event_t *ev;

    if (redis->shared == NULL) {
        /* no zone uses it */
        return;
    }

    ev = &redis->client.look;

    ev->handler = breaker_handler;
    ev->data = redis;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    ngx_add_timer(ev, 1 + ngx_random() % kLook);
}

static void breaker_handler(ngx_event_t *ev)
{
    Redis *redis = ev->data;

    ngx_msec_t wait;

    if (ngx_exiting) {
        return;
    }

    switch (limit_sliding::breaker_check(&redis->shared->breaker,
                                         ngx_current_msec)) {
    case BreakerState::kClosed:
        wait = kLook;

        if (redis->client.nodes.is_cluster()) {
            wait = ngx_min(wait, redis->client.nodes.retry());
        }

        break;

    case BreakerState::kProbe:
        send_probe(redis);

        /* fall through */

    default:
        wait = until_probe(redis);
        wait = ngx_min(wait, kLookOpen);
    }

    ngx_add_timer(ev, wait);
}

/* At least a millisecond: a worker whose clock is behind shall not spin. */

static ngx_msec_t until_probe(Redis *redis)
{
    ngx_msec_int_t left;

    left = (ngx_msec_int_t)(limit_sliding::breaker_probe_ms(
                                &redis->shared->breaker)
                            - ngx_current_msec);

    return ngx_max(left, 1);
}

/*
 * Asks for one key of nobody's, and so finds out whether Redis takes writes:
 * the breaker learns of it as of any other call.  Each time another key, and so
 * perhaps another node of a cluster.
 */

static void send_probe(Redis *redis)
{
    u_char key[sizeof("probe") + NGX_INT_T_LEN];
    Claim claim;
    Ask *ask;
    Node *to;
    RemoteClaim remote;

    static ngx_uint_t n;

    if (!redis->client.nodes.is_started() && redis_start(redis) != NGX_OK) {
        return;
    }

    ngx_memzero(&claim, sizeof(Claim));
    ngx_memzero(&remote, sizeof(RemoteClaim));

    claim.policy = &redis->probe_policy;
    claim.limit = kLimitMax;
    claim.cost = 1;
    claim.remote = &remote;

    remote.zone = &redis->probe_zone;
    remote.key.data = key;
    remote.key.len = ngx_sprintf(key, "probe%ui",
                                 redis->client.nodes.is_cluster() ? n++ : 0)
                     - key;

    if (find_ask(redis, 0)) {
        return;
    }

    ask = create_ask(redis, &claim, 1);
    if (ask == NULL) {
        return;
    }

    to = redis->client.nodes.route(ask->slot);
    if (to == NULL) {
        ngx_free(ask);
        return;
    }

    /* probes come at the breaker's pace */

    to->forgive();

    share_ask(ask, 0);

    join_ask(redis, ask, NULL);
}

} // namespace limit_sliding
