/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/setup.hpp"

#include "ngx/pool.hpp"
#include "ngx/strings.hpp"
#include "redis/scripts.hpp"

namespace limit_sliding {

namespace {

/* Its address tells our shared memory from that of others. */
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

bool is_localhost(const ngx_str_t &host)
{
    constexpr std::string_view kLocalhost = "localhost";

    return host.len == kLocalhost.size()
           && ngx_strncasecmp(host.data, bytes(kLocalhost), host.len) == 0;
}

/*
 * Without a resolver names are looked up now, as those of upstreams are.  So is
 * "localhost" in any case: name servers need not know it (RFC 6761), and Angie
 * and Tengine have a resolver even where none is configured.  A name that is
 * not found is no reason not to start: its Redis is away, as one that does not
 * answer.  Without a resolver it cannot be looked up again later, since that
 * would block a worker, but it is by each reload.
 */
ngx_int_t look_up_servers(ngx_conf_t *cf, Settings &settings)
{
    for (Server &server : settings.servers) {
        ngx_url_t &url = server.url;
        if (url.naddrs || (settings.resolver && !is_localhost(url.host))
            || ngx_inet_resolve_host(cf->pool, &url) == NGX_OK) {
            continue;
        }

        if (url.err == nullptr) {
            return NGX_ERROR;
        }

        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "%s in server \"%V\" of limit_sliding_redis \"%V\", "
                      "without a \"resolver\" it is away until a reload "
                      "finds it, in %s:%ui",
                      url.err, &server.text, &settings.name, server.file,
                      server.line);
    }
    return NGX_OK;
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

/* Makes the script that the zones need. */
ngx_int_t init_script(ngx_conf_t *cf, Redis &redis)
{
    auto algorithms = static_cast<unsigned>(redis.algorithms);
    if (redis.settings.topology == Topology::kCluster) {
        algorithms |= kScriptCluster;
    }

    u_char digest[20];
    ngx_str_t &text = redis.script;
    ngx_str_t &sha1 = redis.script_sha1;

    text.len = script(algorithms, nullptr, 0);
    text.data = alloc_bytes(cf->pool, text.len + 1);
    sha1.len = 2 * sizeof(digest);
    sha1.data = alloc_bytes(cf->pool, sha1.len);
    if (text.data == nullptr || sha1.data == nullptr) {
        return NGX_ERROR;
    }

    (void)script(algorithms, reinterpret_cast<char *>(text.data), text.len + 1);
    ngx_sha1_t sha;
    ngx_sha1_init(&sha);
    ngx_sha1_update(&sha, text.data, text.len);
    ngx_sha1_final(digest, &sha);
    ngx_hex_dump(sha1.data, digest, sizeof(digest));
    return NGX_OK;
}

/* The server as it was in the last cycle, if it had addresses. */
const Server *find_known(const Settings &last, const ngx_str_t &text)
{
    for (const Server &server : last.servers) {
        if (server.url.naddrs && view(server.text) == view(text)) {
            return &server;
        }
    }
    return nullptr;
}

/* The addresses of the last cycle go with it.  Their names are not used. */
ngx_int_t copy_addresses(ngx_pool_t *pool, ngx_url_t &to, const ngx_url_t &from)
{
    auto *addrs = static_cast<ngx_addr_t *>(
        ngx_pcalloc(pool, from.naddrs * sizeof(ngx_addr_t)));
    if (addrs == nullptr) {
        return NGX_ERROR;
    }

    for (ngx_uint_t i = 0; i < from.naddrs; i++) {
        socklen_t len = from.addrs[i].socklen;
        addrs[i].socklen = len;
        addrs[i].sockaddr = static_cast<sockaddr *>(ngx_palloc(pool, len));
        if (addrs[i].sockaddr == nullptr) {
            return NGX_ERROR;
        }

        ngx_memcpy(addrs[i].sockaddr, from.addrs[i].sockaddr, len);
    }

    to.addrs = addrs;
    to.naddrs = from.naddrs;
    return NGX_OK;
}

/* What was known before is better than nothing: a reload while the name server
 * is away loses no Redis. */
ngx_int_t keep_addresses(Redis &redis, const Settings &last, ngx_log_t *log)
{
    Settings &settings = redis.settings;
    for (Server &server : settings.servers) {
        const Server *known = find_known(last, server.text);
        if (settings.resolver || server.url.naddrs || known == nullptr) {
            continue;
        }

        if (copy_addresses(redis.pool, server.url, known->url) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "server \"%V\" of limit_sliding_redis \"%V\" "
                      "keeps its last addresses",
                      &server.text, &settings.name);
    }
    return NGX_OK;
}

/* The handler of the shared memory; `data` is the Redis of the last cycle. */
ngx_int_t init_shared(ngx_shm_zone_t *shm_zone, void *data)
{
    auto &redis = *static_cast<Redis *>(shm_zone->data);
    if (data) {
        const auto &last = *static_cast<Redis *>(data);
        redis.shared = last.shared;
        return keep_addresses(redis, last.settings, shm_zone->shm.log);
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
    constexpr std::string_view kPrefix = "limit_sliding_redis ";
    ngx_str_t name;
    name.len = kPrefix.size() + redis.settings.name.len;
    name.data = alloc_bytes(cf->pool, name.len);
    if (name.data == nullptr) {
        return NGX_ERROR;
    }

    append(append(name.data, kPrefix), view(redis.settings.name));

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
        || init_script(cf, *redis) != NGX_OK) {
        return NGX_ERROR;
    }
    return add_shared(cf, *redis);
}

} // namespace limit_sliding
