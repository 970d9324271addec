
/*
 * Copyright (C) the limit_sliding authors
 */

/* Asks, from the first request that needs one. */

#include "redis/ask.hpp"
#include "ngx/ngx.hpp"
#include "redis/batch.hpp"
#include "redis/cross_slot.hpp"
#include "redis/deliver.hpp"

namespace limit_sliding {

ngx_int_t ask_redis(Redis *redis, Claim *claims, ngx_uint_t nclaims,
                    Waiter *waiter)
{
    uint64_t hash;
    Ask *ask;

    if (!redis->client.nodes.is_started() && redis_start(redis) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (limit_sliding::breaker_is_open(&redis->shared->breaker)) {
        return NGX_DECLINED;
    }

    if (redis->client.nodes.is_away()) {
        return NGX_DECLINED;
    }

    hash = limit_sliding::claim_hash(claims, nclaims);

    ask = find_ask(redis, hash);

    if (ask == NULL) {
        ask = create_ask(redis, claims, nclaims);
        if (ask == NULL) {
            return NGX_DECLINED;
        }

        if (ask->slot == kMixedSlots) {
            return ask_across_slots(redis, ask, claims, waiter);
        }

        share_ask(ask, hash);
    }

    if (redis->client.nodes.is_worth(ask->slot)) {
        join_ask(redis, ask, waiter);
        return NGX_OK;
    }

    if (ask->units == 0 && !ask->in_call) {
        ask_done(redis, ask);
    }

    return NGX_DECLINED;
}

/* A hash that two asks share is as unlikely as in the zone's own memory. */

Ask *find_ask(Redis *redis, uint64_t hash)
{
    ngx_rbtree_node_t *node;

    node = redis->client.asks.root;

    while (node != &redis->client.sentinel) {

        if (node->key == hash) {
            return (Ask *)node;
        }

        node = (hash < node->key) ? node->left : node->right;
    }

    return NULL;
}

Ask *create_ask(Redis *redis, Claim *claims, ngx_uint_t nclaims)
{
    size_t len;
    u_char *p;
    ngx_uint_t i;
    Ask *ask;
    AskPart *part;
    RemoteClaim *remote;

    len = 0;

    for (i = 0; i < nclaims; i++) {
        remote = claims[i].remote;
        len += remote->zone->prefix.len + 1 + ngx_max(remote->key.len, 40);
    }

    ask = alloc_ask(redis, nclaims, len);
    if (ask == NULL) {
        return NULL;
    }

    p = (u_char *)&ask->parts[nclaims];

    for (i = 0; i < nclaims; i++) {
        part = &ask->parts[i];

        remote = claims[i].remote;

        part->claim = claims[i];
        part->zone = remote->zone;
        part->key.data = p;

        p = write_key(redis, remote, p);

        part->key.len = p - part->key.data;
        part->slot = 0;
        part->index = i;
        part->leased = 0;
        part->held = 0;

        if (redis->client.nodes.is_cluster()) {
            part->slot
                = limit_sliding::cluster_slot(part->key.data, part->key.len);
            if (part->slot != ask->parts[0].slot) {
                ask->slot = kMixedSlots;
            }
        }
    }

    if (ask->slot != kMixedSlots) {
        ask->slot = ask->parts[0].slot;
    }

    return ask;
}

/* So many parts, and bytes of their keys. */

Ask *alloc_ask(Redis *redis, ngx_uint_t nparts, size_t len)
{
    Ask *ask;

    len += offsetof(Ask, parts) + nparts * sizeof(AskPart);

    ask = ngx_alloc(len, ngx_cycle->log);
    if (ask == NULL) {
        return NULL;
    }

    ngx_memzero(ask, offsetof(Ask, parts));

    ask->redis = redis;
    ask->to = redis->client.nodes.node;
    ask->nparts = nparts;

    ngx_queue_init(&ask->waiters);
    ngx_queue_init(&ask->asked);

    return ask;
}

/* With all requests that claim the same. */

void share_ask(Ask *ask, uint64_t hash)
{
    ask->shared = 1;
    ask->node.key = hash;
    ngx_rbtree_insert(&ask->redis->client.asks, &ask->node);
}

/* "PREFIXZONE:{KEY}", which is as long as the prefix, the key or 40, and 1.  A
 * cluster takes braces with nothing in between for none, and would not keep the
 * key's state and its limit together. */

u_char *write_key(Redis *redis, RemoteClaim *remote, u_char *p)
{
    u_char digest[20];
    ngx_sha1_t sha;

    p = ngx_cpymem(p, remote->zone->prefix.data, remote->zone->prefix.len);

    if (redis->settings.key_format == KeyFormat::kPlain
        && !(redis->client.nodes.is_cluster() && remote->key.data[0] == '}')) {
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

} // namespace limit_sliding
