/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/client.hpp"

#include "ngx/pool.hpp"
#include "redis/addresses.hpp"
#include "redis/breaker_probe.hpp"
#include "redis/cross_slot.hpp"
#include "redis/script_call.hpp"
#include "redis/start.hpp"

namespace limit_sliding {

bool has_redis = true;

namespace {

/* The address tells our shared memory from that of others. */
ngx_uint_t redis_tag;

/* Does it have name servers?  NGINX has an array of them, Angie a list. */
bool has_servers(const ngx_resolver_t &resolver)
{
#if (angie_version >= 1012000)
    return resolver.connections != nullptr;
#else
    return resolver.connections.nelts != 0;
#endif
}

/* Probes are of the first algorithm that the script knows, with keys of their
 * own. */
ngx_int_t init_probe(ngx_conf_t *cf, Redis &redis)
{
    unsigned algorithm = 0;

    while (!(redis.algorithms >> algorithm & 1)) {
        algorithm++;
    }

    redis.probe_policy.window_ms = 1000;
    redis.probe_policy.algorithm = static_cast<Algorithm>(algorithm);

    ngx_str_t &prefix = redis.probe_zone.prefix;

    prefix.len = redis.settings.key_prefix.len + 1;
    prefix.data = alloc_bytes(cf->pool, prefix.len);
    if (prefix.data == nullptr) {
        return NGX_ERROR;
    }

    ngx_sprintf(prefix.data, "%V{", &redis.settings.key_prefix);

    return NGX_OK;
}

ngx_int_t init_shared(ngx_shm_zone_t *shm_zone, void *data)
{
    auto &redis = *static_cast<Redis *>(shm_zone->data);

    if (data) {
        auto &last = *static_cast<Redis *>(data);

        redis.shared = last.shared;

        return keep_addresses(redis.pool, redis.settings, last.settings,
                              shm_zone->shm.log);
    }

    auto *pool = reinterpret_cast<ngx_slab_pool_t *>(shm_zone->shm.addr);

    redis.shared = static_cast<RedisShared *>(
        ngx_slab_calloc(pool, sizeof(RedisShared)));

    return redis.shared ? NGX_OK : NGX_ERROR;
}

/* Adds a little memory that all workers share, and those of the next cycle. */
ngx_int_t add_shared(ngx_conf_t *cf, Redis &redis)
{
    /* no zone of a user's is called so, but for one with a blank */
    ngx_str_t name;

    name.len = sizeof("limit_sliding_redis ") - 1 + redis.settings.name.len;
    name.data = alloc_bytes(cf->pool, name.len);
    if (name.data == nullptr) {
        return NGX_ERROR;
    }

    ngx_sprintf(name.data, "limit_sliding_redis %V", &redis.settings.name);

    redis.shm_zone
        = ngx_shared_memory_add(cf, &name, 8 * ngx_pagesize, &redis_tag);
    if (redis.shm_zone == nullptr) {
        return NGX_ERROR;
    }

    redis.shm_zone->init = init_shared;
    redis.shm_zone->data = &redis;

    return NGX_OK;
}

} // namespace

ngx_int_t redis_init(ngx_conf_t *cf, Redis *redis, ngx_resolver_t *resolver)
{
    if (resolver && has_servers(*resolver)) {
        redis->settings.resolver = resolver;
    }

    redis->pool = cf->pool;

    if (redis->algorithms == 0) {
        /* no zone uses it */
        return NGX_OK;
    }

    if (look_up_servers(cf, redis->settings) != NGX_OK
        || init_probe(cf, *redis) != NGX_OK
        || make_script(cf, *redis) != NGX_OK) {
        return NGX_ERROR;
    }

    return add_shared(cf, *redis);
}

void redis_enter(Redis *redis)
{
    if (redis->shared) {
        start_probes(*redis);
    }
}

void redis_exit(Redis *redis)
{
    redis->client.nodes.close();
}

ngx_int_t ask_redis(Redis *redis, Claim *claims, ngx_uint_t nclaims,
                    Waiter *waiter)
{
    Nodes &nodes = redis->client.nodes;

    if (start_client(*redis) != NGX_OK
        || breaker_is_open(&redis->shared->breaker) || nodes.is_away()) {
        return NGX_DECLINED;
    }

    uint64_t hash = claim_hash(claims, nclaims);
    Ask *ask = find_ask(*redis, hash);

    if (ask == nullptr) {
        ask = create_ask(*redis, claims, nclaims);
        if (ask == nullptr) {
            return NGX_DECLINED;
        }

        if (ask->slot == kMixedSlots) {
            return ask_across_slots(*ask, claims, waiter);
        }

        share_ask(*ask, hash);
    }

    if (nodes.is_worth(ask->slot)) {
        join_ask(*ask, waiter);
        return NGX_OK;
    }

    if (ask->units == 0 && !ask->in_call) {
        ask_done(*ask);
    }

    return NGX_DECLINED;
}

} // namespace limit_sliding
