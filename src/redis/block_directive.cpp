
/*
 * Copyright (C) the limit_sliding authors
 */

/* limit_sliding_redis name { ... } */

#include "ngx/ngx.hpp"
#include "redis/node.hpp"

namespace limit_sliding {

static char *check_block(ngx_conf_t *cf, Redis *redis);
static char *check_sentinel(ngx_conf_t *cf, Redis *redis);

ngx_uint_t has_redis = 1;

char *redis_block(ngx_conf_t *cf, Redis *redis)
{
    char *rv;
    ngx_conf_t save;

    redis->topology = Topology::kUnset;
    redis->database = NGX_CONF_UNSET_UINT;
    redis->ssl = NGX_CONF_UNSET;
    redis->ssl_verify = NGX_CONF_UNSET;
    redis->connect_timeout = NGX_CONF_UNSET_MSEC;
    redis->timeout = NGX_CONF_UNSET_MSEC;
    redis->on_error = OnError::kUnset;
    redis->key_format = KeyFormat::kUnset;

    if (ngx_array_init(&redis->servers, cf->pool, 2, sizeof(Server))
        != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    save = *cf;
    cf->handler = redis_field;
    cf->handler_conf = (void *)redis;

    rv = ngx_conf_parse(cf, NULL);

    *cf = save;

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    redis->defined = 1;

    if (check_block(cf, redis) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    return redis->ssl ? redis_ssl(cf, redis) : NGX_CONF_OK;
}

/* What is missing, and defaults. */

static char *check_block(ngx_conf_t *cf, Redis *redis)
{
    char *missing;

    if (redis->topology == Topology::kUnset) {
        redis->topology = Topology::kStandalone;
    }

    ngx_conf_init_uint_value(redis->database, 0);
    ngx_conf_init_value(redis->ssl, 0);
    ngx_conf_init_value(redis->ssl_verify, 1);
    ngx_conf_init_msec_value(redis->connect_timeout, 100);
    ngx_conf_init_msec_value(redis->timeout, 50);
    if (redis->on_error == OnError::kUnset) {
        redis->on_error = OnError::kLocal;
    }

    if (redis->key_format == KeyFormat::kUnset) {
        redis->key_format = KeyFormat::kDigest;
    }

    if (redis->key_prefix.data == NULL) {
        ngx_str_set(&redis->key_prefix, "limit_sliding:");
    }

    missing = NULL;

    if (redis->servers.nelts == 0) {
        missing = "server";

    } else if (redis->user.len && redis->password.data == NULL) {
        missing = "password\" or \"password_file";

    } else if (redis->sentinel_user.len
               && redis->sentinel_password.data == NULL) {
        missing = "sentinel_password\" or \"sentinel_password_file";

    } else if (redis->ssl_certificate.len
               && redis->ssl_certificate_key.len == 0) {
        missing = "ssl_certificate_key";

    } else if (redis->ssl_certificate_key.len
               && redis->ssl_certificate.len == 0) {
        missing = "ssl_certificate";

    } else if (redis->ssl && redis->ssl_verify
               && redis->ssl_trusted_certificate.len == 0) {
        missing = "ssl_trusted_certificate";
    }

    if (redis->topology == Topology::kSentinel
        && redis->sentinel_master.len == 0) {
        missing = "sentinel_master";
    }

    if (missing) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "limit_sliding_redis \"%V\" has no \"%s\"",
                           &redis->name, missing);
        return NGX_CONF_ERROR;
    }

    if (redis->servers.nelts > 1 && redis->topology == Topology::kStandalone) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "limit_sliding_redis \"%V\" has several servers, "
                           "which needs \"topology sentinel\" or "
                           "\"topology cluster\"",
                           &redis->name);
        return NGX_CONF_ERROR;
    }

    if (redis->database && redis->topology == Topology::kCluster) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"database\" in limit_sliding_redis \"%V\" must "
                           "be 0 with \"topology cluster\"",
                           &redis->name);
        return NGX_CONF_ERROR;
    }

    if (redis->topology == Topology::kCluster
        && ngx_strlchr(redis->key_prefix.data,
                       redis->key_prefix.data + redis->key_prefix.len, '{')) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"key_prefix\" \"%V\" in limit_sliding_redis "
                           "\"%V\" must have no \"{\" with "
                           "\"topology cluster\"",
                           &redis->key_prefix, &redis->name);
        return NGX_CONF_ERROR;
    }

    return check_sentinel(cf, redis);
}

/* What is of sentinels needs them. */

static char *check_sentinel(ngx_conf_t *cf, Redis *redis)
{
    char *word;

    if (redis->topology == Topology::kSentinel) {
        return NGX_CONF_OK;
    }

    if (redis->sentinel_master.len) {
        word = "sentinel_master";

    } else if (redis->sentinel_user.len) {
        word = "sentinel_user";

    } else if (redis->sentinel_password.data) {
        word = "sentinel_password";

    } else {
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%s\" in limit_sliding_redis \"%V\" "
                       "needs \"topology sentinel\"",
                       word, &redis->name);
    return NGX_CONF_ERROR;
}

} // namespace limit_sliding
