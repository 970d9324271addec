
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


#include "redis/cluster.h"


/* How often to look, in milliseconds.  At a closed breaker: before a probe can
 * be due, if it opens right after that.  At an open one: another worker's probe
 * may have closed it. */

#define NGX_HTTP_LIMIT_SLIDING_LOOK       (LIMIT_SLIDING_BREAKER_INTERVAL_MS  \
                                           * 3 / 4)
#define NGX_HTTP_LIMIT_SLIDING_LOOK_OPEN  100


static void ngx_http_limit_sliding_look(ngx_event_t *ev);
static ngx_msec_t ngx_http_limit_sliding_until_probe(
    ngx_http_limit_sliding_redis_t *redis);
static void ngx_http_limit_sliding_probe(
    ngx_http_limit_sliding_redis_t *redis);


/* Workers look at different times.  The timer is one that a worker which is to
 * exit does not wait for. */

void
ngx_http_limit_sliding_redis_enter(ngx_http_limit_sliding_redis_t *redis)
{
    ngx_event_t  *ev;

    if (redis->shared == NULL) {
        /* no zone uses it */
        return;
    }

    ev = &redis->look;

    ev->handler = ngx_http_limit_sliding_look;
    ev->data = redis;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    ngx_add_timer(ev, 1 + ngx_random() % NGX_HTTP_LIMIT_SLIDING_LOOK);
}


static void
ngx_http_limit_sliding_look(ngx_event_t *ev)
{
    ngx_http_limit_sliding_redis_t  *redis = ev->data;

    ngx_msec_t  wait;

    if (ngx_exiting) {
        return;
    }

    switch (limit_sliding_breaker_check(&redis->shared->breaker,
                                        ngx_current_msec))
    {
    case LIMIT_SLIDING_BREAKER_CLOSED:
        wait = NGX_HTTP_LIMIT_SLIDING_LOOK;

        if (redis->cluster) {
            wait = ngx_min(wait, ngx_http_limit_sliding_cluster_retry(redis));
        }

        break;

    case LIMIT_SLIDING_BREAKER_PROBE:
        ngx_http_limit_sliding_probe(redis);

        /* fall through */

    default:
        wait = ngx_http_limit_sliding_until_probe(redis);
        wait = ngx_min(wait, NGX_HTTP_LIMIT_SLIDING_LOOK_OPEN);
    }

    ngx_add_timer(ev, wait);
}


/* At least a millisecond: a worker whose clock is behind shall not spin. */

static ngx_msec_t
ngx_http_limit_sliding_until_probe(ngx_http_limit_sliding_redis_t *redis)
{
    ngx_msec_int_t  left;

    left = (ngx_msec_int_t)
           (limit_sliding_breaker_probe_ms(&redis->shared->breaker)
            - ngx_current_msec);

    return ngx_max(left, 1);
}


/*
 * Asks for one key of nobody's, and so finds out whether Redis takes writes:
 * the breaker learns of it as of any other call.  Each time another key, and so
 * perhaps another node of a cluster.
 */

static void
ngx_http_limit_sliding_probe(ngx_http_limit_sliding_redis_t *redis)
{
    u_char                            key[sizeof("probe") + NGX_INT_T_LEN];
    limit_sliding_claim_t             claim;
    ngx_http_limit_sliding_ask_t     *ask;
    ngx_http_limit_sliding_node_t    *to;
    ngx_http_limit_sliding_remote_t   remote;

    static ngx_uint_t                 n;

    if (redis->node == NULL && redis->cluster == NULL
        && ngx_http_limit_sliding_redis_start(redis) != NGX_OK)
    {
        return;
    }

    ngx_memzero(&claim, sizeof(limit_sliding_claim_t));
    ngx_memzero(&remote, sizeof(ngx_http_limit_sliding_remote_t));

    claim.policy = &redis->probe_policy;
    claim.limit = LIMIT_SLIDING_LIMIT_MAX;
    claim.cost = 1;
    claim.remote = &remote;

    remote.zone = &redis->probe_zone;
    remote.key.data = key;
    remote.key.len = ngx_sprintf(key, "probe%ui", redis->cluster ? n++ : 0)
                     - key;

    if (ngx_http_limit_sliding_find_ask(redis, 0)) {
        return;
    }

    ask = ngx_http_limit_sliding_create_ask(redis, &claim, 1);
    if (ask == NULL) {
        return;
    }

    to = ngx_http_limit_sliding_route(redis, ask->slot);
    if (to == NULL) {
        ngx_free(ask);
        return;
    }

    /* probes come at the breaker's pace */

    to->failures = 0;

    ngx_http_limit_sliding_share_ask(ask, 0);

    ngx_http_limit_sliding_join(redis, ask, NULL);
}
