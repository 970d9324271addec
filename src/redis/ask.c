
/*
 * Copyright (C) the limit_sliding authors
 */


/* Asks, from the first request that needs one. */


#include "redis/cluster.h"

#include <ngx_sha1.h>


ngx_int_t
ngx_http_limit_sliding_ask(ngx_http_limit_sliding_redis_t *redis,
    limit_sliding_claim_t *claims, ngx_uint_t nclaims,
    ngx_http_limit_sliding_waiter_t *waiter)
{
    uint64_t                       hash;
    ngx_http_limit_sliding_ask_t  *ask;

    if (redis->node == NULL && redis->cluster == NULL
        && ngx_http_limit_sliding_redis_start(redis) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    if (limit_sliding_breaker_is_open(&redis->shared->breaker)) {
        return NGX_DECLINED;
    }

    if (redis->node && !ngx_http_limit_sliding_node_is_usable(redis->node)) {
        return NGX_DECLINED;
    }

    hash = limit_sliding_claim_hash(claims, nclaims);

    ask = ngx_http_limit_sliding_find_ask(redis, hash);

    if (ask == NULL) {
        ask = ngx_http_limit_sliding_create_ask(redis, claims, nclaims);
        if (ask == NULL) {
            return NGX_DECLINED;
        }

        if (ask->slot == NGX_HTTP_LIMIT_SLIDING_MIXED) {
            return ngx_http_limit_sliding_split(redis, ask, claims, waiter);
        }

        ngx_http_limit_sliding_share_ask(ask, hash);
    }

    if (ngx_http_limit_sliding_is_worth(redis, ask->slot)) {
        ngx_http_limit_sliding_join(redis, ask, waiter);
        return NGX_OK;
    }

    if (ask->units == 0 && !ask->in_call) {
        ngx_http_limit_sliding_ask_done(redis, ask);
    }

    return NGX_DECLINED;
}


/* A hash that two asks share is as unlikely as in the zone's own memory. */

ngx_http_limit_sliding_ask_t *
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


ngx_http_limit_sliding_ask_t *
ngx_http_limit_sliding_create_ask(ngx_http_limit_sliding_redis_t *redis,
    limit_sliding_claim_t *claims, ngx_uint_t nclaims)
{
    size_t                            len;
    u_char                           *p;
    ngx_uint_t                        i;
    ngx_http_limit_sliding_ask_t     *ask;
    ngx_http_limit_sliding_part_t    *part;
    ngx_http_limit_sliding_remote_t  *remote;

    len = 0;

    for (i = 0; i < nclaims; i++) {
        remote = claims[i].remote;
        len += remote->zone->prefix.len + 1 + ngx_max(remote->key.len, 40);
    }

    ask = ngx_http_limit_sliding_alloc_ask(redis, nclaims, len);
    if (ask == NULL) {
        return NULL;
    }

    p = (u_char *) &ask->parts[nclaims];

    for (i = 0; i < nclaims; i++) {
        part = &ask->parts[i];

        remote = claims[i].remote;

        part->claim = claims[i];
        part->zone = remote->zone;
        part->key.data = p;

        p = ngx_http_limit_sliding_write_key(redis, remote, p);

        part->key.len = p - part->key.data;
        part->slot = 0;
        part->index = i;
        part->leased = 0;
        part->held = 0;

        if (redis->cluster) {
            part->slot = limit_sliding_cluster_slot(part->key.data,
                                                    part->key.len);
            if (part->slot != ask->parts[0].slot) {
                ask->slot = NGX_HTTP_LIMIT_SLIDING_MIXED;
            }
        }
    }

    if (ask->slot != NGX_HTTP_LIMIT_SLIDING_MIXED) {
        ask->slot = ask->parts[0].slot;
    }

    return ask;
}


/* So many parts, and bytes of their keys. */

ngx_http_limit_sliding_ask_t *
ngx_http_limit_sliding_alloc_ask(ngx_http_limit_sliding_redis_t *redis,
    ngx_uint_t nparts, size_t len)
{
    ngx_http_limit_sliding_ask_t  *ask;

    len += offsetof(ngx_http_limit_sliding_ask_t, parts)
           + nparts * sizeof(ngx_http_limit_sliding_part_t);

    ask = ngx_alloc(len, ngx_cycle->log);
    if (ask == NULL) {
        return NULL;
    }

    ngx_memzero(ask, offsetof(ngx_http_limit_sliding_ask_t, parts));

    ask->redis = redis;
    ask->to = redis->node;
    ask->nparts = nparts;

    ngx_queue_init(&ask->waiters);
    ngx_queue_init(&ask->asked);

    return ask;
}


/* With all requests that claim the same. */

void
ngx_http_limit_sliding_share_ask(ngx_http_limit_sliding_ask_t *ask,
    uint64_t hash)
{
    ask->shared = 1;
    ask->node.key = hash;
    ngx_rbtree_insert(&ask->redis->asks, &ask->node);
}


/* "PREFIXZONE:{KEY}", which is as long as the prefix, the key or 40, and 1.  A
 * cluster takes braces with nothing in between for none, and would not keep the
 * key's state and its limit together. */

u_char *
ngx_http_limit_sliding_write_key(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_remote_t *remote, u_char *p)
{
    u_char      digest[20];
    ngx_sha1_t  sha;

    p = ngx_cpymem(p, remote->zone->prefix.data, remote->zone->prefix.len);

    if (redis->key_format == NGX_HTTP_LIMIT_SLIDING_KEY_PLAIN
        && !(redis->cluster && remote->key.data[0] == '}'))
    {
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
