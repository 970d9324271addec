
/*
 * Copyright (C) the limit_sliding authors
 */


/* Asks, from the first request that needs one to the call that carries it. */


#include "ngx_http_limit_sliding_redis_node.h"

#include <ngx_sha1.h>


/*
 * So many calls under way before others wait to be filled: while Redis is busy
 * one call of many asks costs it less than many calls.
 */

#define NGX_HTTP_LIMIT_SLIDING_CALLS  4


static ngx_http_limit_sliding_ask_t *ngx_http_limit_sliding_find_ask(
    ngx_http_limit_sliding_redis_t *redis, uint64_t hash);
static ngx_http_limit_sliding_ask_t *ngx_http_limit_sliding_create_ask(
    ngx_http_limit_sliding_redis_t *redis, limit_sliding_claim_t *claims,
    ngx_uint_t nclaims);
static void ngx_http_limit_sliding_probe(
    ngx_http_limit_sliding_redis_t *redis);
static ngx_int_t ngx_http_limit_sliding_call(
    ngx_http_limit_sliding_redis_t *redis);
static void ngx_http_limit_sliding_take_waiters(
    ngx_http_limit_sliding_ask_t *ask);


ngx_int_t
ngx_http_limit_sliding_ask(ngx_http_limit_sliding_redis_t *redis,
    limit_sliding_claim_t *claims, ngx_uint_t nclaims,
    ngx_http_limit_sliding_waiter_t *waiter)
{
    uint64_t                       hash;
    ngx_http_limit_sliding_ask_t  *ask;

    if (redis->node == NULL
        && ngx_http_limit_sliding_redis_start(redis) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    switch (limit_sliding_breaker_check(&redis->shared->breaker,
                                        ngx_current_msec))
    {
    case LIMIT_SLIDING_BREAKER_PROBE:
        ngx_http_limit_sliding_probe(redis);
        return NGX_DECLINED;

    case LIMIT_SLIDING_BREAKER_OPEN:
        return NGX_DECLINED;

    default:
        break;
    }

    if (!ngx_http_limit_sliding_node_is_usable(redis->node)) {
        return NGX_DECLINED;
    }

    hash = limit_sliding_claim_hash(claims, nclaims);

    ask = ngx_http_limit_sliding_find_ask(redis, hash);

    if (ask == NULL) {
        ask = ngx_http_limit_sliding_create_ask(redis, claims, nclaims);
        if (ask == NULL) {
            return NGX_DECLINED;
        }

        ask->node.key = hash;
        ngx_rbtree_insert(&redis->asks, &ask->node);
    }

    ngx_http_limit_sliding_join(redis, ask, waiter);

    return NGX_OK;
}


/* A hash that two asks share is as unlikely as in the zone's own memory. */

static ngx_http_limit_sliding_ask_t *
ngx_http_limit_sliding_find_ask(ngx_http_limit_sliding_redis_t *redis,
    uint64_t hash)
{
    ngx_rbtree_node_t  *node;

    node = redis->asks.root;

    while (node != &redis->sentinel) {

        if (node->key == hash) {
            return (ngx_http_limit_sliding_ask_t *) node;
        }

        node = (hash < node->key) ? node->left : node->right;
    }

    return NULL;
}


static ngx_http_limit_sliding_ask_t *
ngx_http_limit_sliding_create_ask(ngx_http_limit_sliding_redis_t *redis,
    limit_sliding_claim_t *claims, ngx_uint_t nclaims)
{
    size_t                            head, len;
    u_char                           *p;
    ngx_uint_t                        i;
    ngx_http_limit_sliding_ask_t     *ask;
    ngx_http_limit_sliding_part_t    *part;
    ngx_http_limit_sliding_remote_t  *remote;

    head = offsetof(ngx_http_limit_sliding_ask_t, parts)
           + nclaims * sizeof(ngx_http_limit_sliding_part_t);

    len = head;

    for (i = 0; i < nclaims; i++) {
        remote = claims[i].remote;
        len += remote->zone->prefix.len + 1 + ngx_max(remote->key.len, 40);
    }

    ask = ngx_alloc(len, ngx_cycle->log);
    if (ask == NULL) {
        return NULL;
    }

    ask->redis = redis;
    ask->units = 0;
    ask->asked_units = 0;
    ask->in_call = 0;
    ask->nparts = nclaims;

    ngx_queue_init(&ask->waiters);
    ngx_queue_init(&ask->asked);

    p = (u_char *) ask + head;

    for (i = 0; i < nclaims; i++) {
        part = &ask->parts[i];

        remote = claims[i].remote;

        part->claim = claims[i];
        part->zone = remote->zone;
        part->key.data = p;

        p = ngx_http_limit_sliding_write_key(redis, remote, p);

        part->key.len = p - part->key.data;
    }

    return ask;
}


/* "PREFIXZONE:{KEY}", which is as long as the prefix, the key or 40, and 1. */

u_char *
ngx_http_limit_sliding_write_key(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_remote_t *remote, u_char *p)
{
    u_char      digest[20];
    ngx_sha1_t  sha;

    p = ngx_cpymem(p, remote->zone->prefix.data, remote->zone->prefix.len);

    if (redis->key_format == NGX_HTTP_LIMIT_SLIDING_KEY_PLAIN) {
        p = ngx_cpymem(p, remote->key.data, remote->key.len);

    } else {
        ngx_sha1_init(&sha);
        ngx_sha1_update(&sha, remote->key.data, remote->key.len);
        ngx_sha1_final(digest, &sha);

        p = ngx_hex_dump(p, digest, sizeof(digest));
    }

    *p++ = '}';

    return p;
}


/*
 * Asks for one key of nobody's, and so finds out whether Redis takes writes:
 * the breaker learns of it as of any other call.
 */

static void
ngx_http_limit_sliding_probe(ngx_http_limit_sliding_redis_t *redis)
{
    limit_sliding_claim_t             claim;
    ngx_http_limit_sliding_ask_t     *ask;
    ngx_http_limit_sliding_remote_t   remote;

    ngx_memzero(&claim, sizeof(limit_sliding_claim_t));
    ngx_memzero(&remote, sizeof(ngx_http_limit_sliding_remote_t));

    claim.policy = &redis->probe_policy;
    claim.limit = LIMIT_SLIDING_LIMIT_MAX;
    claim.cost = 1;
    claim.remote = &remote;

    remote.zone = &redis->probe_zone;
    ngx_str_set(&remote.key, "probe");

    if (ngx_http_limit_sliding_find_ask(redis, 0)) {
        return;
    }

    ask = ngx_http_limit_sliding_create_ask(redis, &claim, 1);
    if (ask == NULL) {
        return;
    }

    /* probes come at the breaker's pace */

    redis->node->failures = 0;

    ask->node.key = 0;
    ngx_rbtree_insert(&redis->asks, &ask->node);

    ngx_http_limit_sliding_join(redis, ask, NULL);
}


/* Posted: sends what is due in this turn of the event loop. */

void
ngx_http_limit_sliding_flush(ngx_event_t *ev)
{
    ngx_http_limit_sliding_redis_t  *redis = ev->data;

    ngx_http_limit_sliding_node_t  *node;

    node = redis->node;

    if (redis->ndue == 0 && node->out_last == 0) {
        return;
    }

    switch (ngx_http_limit_sliding_node_open(node)) {

    case NGX_OK:
        break;

    case NGX_AGAIN:
        return;

    default:
        ngx_http_limit_sliding_fail_due(redis);
        return;
    }

    while (redis->ndue >= NGX_HTTP_LIMIT_SLIDING_ASKS
           || (redis->ndue && node->ncalls < NGX_HTTP_LIMIT_SLIDING_CALLS))
    {
        if (ngx_http_limit_sliding_call(redis) != NGX_OK) {
            ngx_http_limit_sliding_node_fail(node, 0, "no memory");
            return;
        }
    }

    ngx_http_limit_sliding_node_send(node);

    if (redis->watch) {
        ngx_http_limit_sliding_watch(redis);
    }
}


static ngx_int_t
ngx_http_limit_sliding_call(ngx_http_limit_sliding_redis_t *redis)
{
    ngx_queue_t                    *q;
    ngx_http_limit_sliding_ask_t   *ask;
    ngx_http_limit_sliding_call_t  *call;

    call = ngx_calloc(sizeof(ngx_http_limit_sliding_call_t), ngx_cycle->log);
    if (call == NULL) {
        return NGX_ERROR;
    }

    call->handler = ngx_http_limit_sliding_answered;
    ngx_queue_init(&call->asks);

    while (!ngx_queue_empty(&redis->due)) {
        q = ngx_queue_head(&redis->due);
        ask = ngx_queue_data(q, ngx_http_limit_sliding_ask_t, queue);

        if (!ngx_http_limit_sliding_call_fits(call, ask)) {
            break;
        }

        ngx_queue_remove(q);
        redis->ndue--;
        ngx_queue_insert_tail(&call->asks, q);

        ngx_http_limit_sliding_take_waiters(ask);
    }

    if (ngx_http_limit_sliding_call_script(redis->node, call) == NGX_OK) {
        return NGX_OK;
    }

    call->handler(redis->node, call, NULL);

    return NGX_ERROR;
}


/* Units that nobody waits for any more come after those of who does. */

static void
ngx_http_limit_sliding_take_waiters(ngx_http_limit_sliding_ask_t *ask)
{
    ngx_uint_t                        turn;
    ngx_queue_t                      *q;
    ngx_http_limit_sliding_waiter_t  *waiter;

    turn = 0;

    while (!ngx_queue_empty(&ask->waiters)) {
        q = ngx_queue_head(&ask->waiters);
        ngx_queue_remove(q);
        ngx_queue_insert_tail(&ask->asked, q);

        waiter = ngx_queue_data(q, ngx_http_limit_sliding_waiter_t, queue);
        waiter->asked = 1;
        waiter->turn = turn++;
    }

    ask->asked_units = ask->units;
    ask->units = 0;
    ask->in_call = 1;
}


/* What waits for a connection waits in vain. */

void
ngx_http_limit_sliding_fail_due(ngx_http_limit_sliding_redis_t *redis)
{
    ngx_queue_t                   *q;
    ngx_http_limit_sliding_ask_t  *ask;

    while (!ngx_queue_empty(&redis->due)) {
        q = ngx_queue_head(&redis->due);
        ngx_queue_remove(q);
        redis->ndue--;

        ask = ngx_queue_data(q, ngx_http_limit_sliding_ask_t, queue);

        ask->units = 0;
        ngx_http_limit_sliding_fail_waiters(&ask->waiters);
        ngx_http_limit_sliding_ask_done(redis, ask);
    }
}
