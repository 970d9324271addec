
/*
 * Copyright (C) the limit_sliding authors
 */

/* What a Redis is to all workers, and to each. */

#include "redis/client.hpp"
#include "ngx/ngx.hpp"
#include "redis/batch.hpp"
#include "redis/script_call.hpp"

namespace limit_sliding {

static ngx_int_t redis_init_servers(ngx_conf_t *cf, Redis *redis);
static ngx_uint_t is_localhost(ngx_str_t *host);
static ngx_int_t redis_init_probe(ngx_conf_t *cf, Redis *redis);
static ngx_int_t redis_add_shared(ngx_conf_t *cf, Redis *redis);
static ngx_int_t redis_init_shared(ngx_shm_zone_t *shm_zone, void *data);
static ngx_int_t redis_keep_addresses(Redis *redis, Redis *oredis,
                                      ngx_log_t *log);
static ngx_int_t redis_copy_addresses(ngx_pool_t *pool, ngx_url_t *to,
                                      ngx_url_t *from);

bool has_redis = true;

static const ClientEvents client_events = {flush_due, fail_due, redis_failed};

static ngx_uint_t redis_tag;

/* NGINX has an array of name servers here, Angie a list. */

#if (angie_version >= 1012000)
#define has_servers(resolver) ((resolver)->connections != NULL)
#else
#define has_servers(resolver) ((resolver)->connections.nelts != 0)
#endif

/* Once all is parsed. */

ngx_int_t redis_init(ngx_conf_t *cf, Redis *redis, ngx_resolver_t *resolver)
{
    if (resolver && has_servers(resolver)) {
        redis->settings.resolver = resolver;
    }

    redis->pool = cf->pool;

    if (redis->algorithms == 0) {
        /* no zone uses it */
        return NGX_OK;
    }

    if (redis_init_servers(cf, redis) != NGX_OK
        || redis_init_probe(cf, redis) != NGX_OK
        || redis_script(cf, redis) != NGX_OK) {
        return NGX_ERROR;
    }

    return redis_add_shared(cf, redis);
}

/*
 * Without a resolver names are looked up now, as those of upstreams are.  So is
 * "localhost" in any case: name servers need not know it (RFC 6761), and Angie
 * and Tengine have a resolver even where none is configured.  A name that is
 * not found is no reason not to start: its Redis is away, as one that does not
 * answer.  Without a resolver it cannot be looked up again later, since that
 * would block a worker, but it is by each reload.
 */

static ngx_int_t redis_init_servers(ngx_conf_t *cf, Redis *redis)
{
    ngx_url_t *url;
    ngx_uint_t i;
    Server *servers;

    servers = redis->settings.servers.elts;

    for (i = 0; i < redis->settings.servers.nelts; i++) {
        url = &servers[i].url;

        if (url->naddrs
            || (redis->settings.resolver && !is_localhost(&url->host))
            || ngx_inet_resolve_host(cf->pool, url) == NGX_OK) {
            continue;
        }

        if (url->err == NULL) {
            /* no memory */
            return NGX_ERROR;
        }

        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "%s in server \"%V\" of limit_sliding_redis \"%V\", "
                      "without a \"resolver\" it is away until a reload "
                      "finds it, in %s:%ui",
                      url->err, &servers[i].text, &redis->settings.name,
                      servers[i].file, servers[i].line);
    }

    return NGX_OK;
}

static ngx_uint_t is_localhost(ngx_str_t *host)
{
    return host->len == sizeof("localhost") - 1
           && ngx_strncasecmp(host->data, (u_char *)"localhost", host->len)
                  == 0;
}

/* One of the algorithms that the script knows, with a key of its own. */

static ngx_int_t redis_init_probe(ngx_conf_t *cf, Redis *redis)
{
    ngx_str_t *prefix;
    Policy *policy;

    policy = &redis->probe_policy;

    policy->window_ms = 1000;

    while (!(redis->algorithms
             & (1u << static_cast<unsigned>(policy->algorithm)))) {
        policy->algorithm = static_cast<Algorithm>(
            static_cast<unsigned>(policy->algorithm) + 1);
    }

    prefix = &redis->probe_zone.prefix;

    prefix->len = redis->settings.key_prefix.len + 1;

    prefix->data = ngx_pnalloc(cf->pool, prefix->len);
    if (prefix->data == NULL) {
        return NGX_ERROR;
    }

    ngx_sprintf(prefix->data, "%V{", &redis->settings.key_prefix);

    return NGX_OK;
}

/* A little memory that all workers share, and those of the next cycle. */

static ngx_int_t redis_add_shared(ngx_conf_t *cf, Redis *redis)
{
    ngx_str_t name;

    /* no zone of a user's is called so, but for one with a blank */

    name.len = sizeof("limit_sliding_redis ") - 1 + redis->settings.name.len;

    name.data = ngx_pnalloc(cf->pool, name.len);
    if (name.data == NULL) {
        return NGX_ERROR;
    }

    ngx_sprintf(name.data, "limit_sliding_redis %V", &redis->settings.name);

    redis->shm_zone
        = ngx_shared_memory_add(cf, &name, 8 * ngx_pagesize, &redis_tag);
    if (redis->shm_zone == NULL) {
        return NGX_ERROR;
    }

    redis->shm_zone->init = redis_init_shared;
    redis->shm_zone->data = redis;

    return NGX_OK;
}

static ngx_int_t redis_init_shared(ngx_shm_zone_t *shm_zone, void *data)
{
    Redis *oredis = data;

    ngx_slab_pool_t *shpool;
    Redis *redis;

    redis = shm_zone->data;

    if (oredis) {
        redis->shared = oredis->shared;
        return redis_keep_addresses(redis, oredis, shm_zone->shm.log);
    }

    shpool = (ngx_slab_pool_t *)shm_zone->shm.addr;

    redis->shared = ngx_slab_calloc(shpool, sizeof(RedisShared));

    return redis->shared ? NGX_OK : NGX_ERROR;
}

/* What was known before is better than nothing: a reload while the name server
 * is away loses no Redis. */

static ngx_int_t redis_keep_addresses(Redis *redis, Redis *oredis,
                                      ngx_log_t *log)
{
    ngx_uint_t i, j;
    Server *is, *was;

    if (redis->settings.resolver) {
        return NGX_OK;
    }

    is = redis->settings.servers.elts;
    was = oredis->settings.servers.elts;

    for (i = 0; i < redis->settings.servers.nelts; i++) {

        for (j = 0; is[i].url.naddrs == 0 && j < oredis->settings.servers.nelts;
             j++) {

            if (was[j].url.naddrs == 0 || was[j].text.len != is[i].text.len
                || ngx_strncmp(was[j].text.data, is[i].text.data,
                               is[i].text.len)
                       != 0) {
                continue;
            }

            if (redis_copy_addresses(redis->pool, &is[i].url, &was[j].url)
                != NGX_OK) {
                return NGX_ERROR;
            }

            ngx_log_error(NGX_LOG_NOTICE, log, 0,
                          "server \"%V\" of limit_sliding_redis \"%V\" "
                          "keeps its last addresses",
                          &is[i].text, &redis->settings.name);
        }
    }

    return NGX_OK;
}

/* Those of the last cycle go with it.  Names of addresses are not used. */

static ngx_int_t redis_copy_addresses(ngx_pool_t *pool, ngx_url_t *to,
                                      ngx_url_t *from)
{
    ngx_uint_t i;
    ngx_addr_t *addrs;

    addrs = ngx_pcalloc(pool, from->naddrs * sizeof(ngx_addr_t));
    if (addrs == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < from->naddrs; i++) {
        addrs[i].socklen = from->addrs[i].socklen;

        addrs[i].sockaddr = ngx_palloc(pool, addrs[i].socklen);
        if (addrs[i].sockaddr == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(addrs[i].sockaddr, from->addrs[i].sockaddr,
                   addrs[i].socklen);
    }

    to->addrs = addrs;
    to->naddrs = from->naddrs;

    return NGX_OK;
}

/* The worker's part, when it is first needed. */

ngx_int_t redis_start(Redis *redis)
{
    ngx_rbtree_init(&redis->client.asks, &redis->client.sentinel,
                    ngx_rbtree_insert_value);
    ngx_queue_init(&redis->client.waiting);

    /* not to be cancelled: an exiting worker still answers its requests */

    redis->client.deadline.handler = deadline_handler;
    redis->client.deadline.data = redis;
    redis->client.deadline.log = ngx_cycle->log;

    redis->client.traffic
        = &redis->shared->traffic[ngx_process_slot % kCallCounters];

    return redis->client.nodes.start(redis, &redis->settings, &client_events);
}

/* The worker exits. */

void redis_exit(Redis *redis)
{
    redis->client.nodes.close();
}

void redis_succeeded(Node &node)
{
    Redis *redis;

    redis = node.redis;

    node.succeeded();

    if (limit_sliding::breaker_succeeded(&redis->shared->breaker)) {

        /* as the line that it has failed: a log that shows one shows both */

        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "limit_sliding redis \"%V\" answers again",
                      &redis->settings.name);
    }
}

void redis_failed(Node &node)
{
    Redis *redis;

    redis = node.redis;
    redis->client.failed = ngx_current_msec;

    if (redis->client.nodes.is_cluster()
        && redis->client.nodes.is_alive_without(node)) {
        /* the rest of it is no worse for that */
        return;
    }

    if (limit_sliding::breaker_failed(&redis->shared->breaker, ngx_current_msec,
                                      (uint32_t)ngx_random())) {
        (void)ngx_atomic_fetch_add(&redis->client.traffic->opened, 1);

        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "limit_sliding redis \"%V\" has failed repeatedly, "
                      "\"on_error %s\" applies until it answers again",
                      &redis->settings.name,
                      kOnErrorWords[index_of(redis->settings.on_error)].data());
    }
}

} // namespace limit_sliding
