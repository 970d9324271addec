
/*
 * Copyright (C) the limit_sliding authors
 */

/* limit_sliding_redis name { ... } */

#include "ngx/ngx.hpp"
#include "redis/block_fields.hpp"
#include "redis/client.hpp"
#include "redis/tls.hpp"

namespace limit_sliding {

static char *check_block(ngx_conf_t *cf, Settings *settings);
static char *check_sentinel(ngx_conf_t *cf, Settings *settings);

ngx_uint_t has_redis = 1;

char *redis_block(ngx_conf_t *cf, Settings *settings)
{
    char *rv;
    ngx_conf_t save;

    settings->topology = Topology::kUnset;
    settings->database = NGX_CONF_UNSET_UINT;
    settings->tls.on = NGX_CONF_UNSET;
    settings->tls.verify = NGX_CONF_UNSET;
    settings->connect_timeout = NGX_CONF_UNSET_MSEC;
    settings->timeout = NGX_CONF_UNSET_MSEC;
    settings->on_error = OnError::kUnset;
    settings->key_format = KeyFormat::kUnset;

    if (ngx_array_init(&settings->servers, cf->pool, 2, sizeof(Server))
        != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    save = *cf;
    cf->handler = redis_field;
    cf->handler_conf = settings;

    rv = ngx_conf_parse(cf, NULL);

    *cf = save;

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    settings->defined = 1;

    if (check_block(cf, settings) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    return settings->tls.on ? redis_ssl(cf, settings) : NGX_CONF_OK;
}

/* What is missing, and defaults. */

static char *check_block(ngx_conf_t *cf, Settings *settings)
{
    char *missing;

    if (settings->topology == Topology::kUnset) {
        settings->topology = Topology::kStandalone;
    }

    ngx_conf_init_uint_value(settings->database, 0);
    ngx_conf_init_value(settings->tls.on, 0);
    ngx_conf_init_value(settings->tls.verify, 1);
    ngx_conf_init_msec_value(settings->connect_timeout, 100);
    ngx_conf_init_msec_value(settings->timeout, 50);
    if (settings->on_error == OnError::kUnset) {
        settings->on_error = OnError::kLocal;
    }

    if (settings->key_format == KeyFormat::kUnset) {
        settings->key_format = KeyFormat::kDigest;
    }

    if (settings->key_prefix.data == NULL) {
        ngx_str_set(&settings->key_prefix, "limit_sliding:");
    }

    missing = NULL;

    if (settings->servers.nelts == 0) {
        missing = "server";

    } else if (settings->credentials.user.len
               && settings->credentials.password.data == NULL) {
        missing = "password\" or \"password_file";

    } else if (settings->sentinel.credentials.user.len
               && settings->sentinel.credentials.password.data == NULL) {
        missing = "sentinel_password\" or \"sentinel_password_file";

    } else if (settings->tls.certificate.len
               && settings->tls.certificate_key.len == 0) {
        missing = "ssl_certificate_key";

    } else if (settings->tls.certificate_key.len
               && settings->tls.certificate.len == 0) {
        missing = "ssl_certificate";

    } else if (settings->tls.on && settings->tls.verify
               && settings->tls.trusted_certificate.len == 0) {
        missing = "ssl_trusted_certificate";
    }

    if (settings->topology == Topology::kSentinel
        && settings->sentinel.master.len == 0) {
        missing = "sentinel_master";
    }

    if (missing) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "limit_sliding_redis \"%V\" has no \"%s\"",
                           &settings->name, missing);
        return NGX_CONF_ERROR;
    }

    if (settings->servers.nelts > 1
        && settings->topology == Topology::kStandalone) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "limit_sliding_redis \"%V\" has several servers, "
                           "which needs \"topology sentinel\" or "
                           "\"topology cluster\"",
                           &settings->name);
        return NGX_CONF_ERROR;
    }

    if (settings->database && settings->topology == Topology::kCluster) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"database\" in limit_sliding_redis \"%V\" must "
                           "be 0 with \"topology cluster\"",
                           &settings->name);
        return NGX_CONF_ERROR;
    }

    if (settings->topology == Topology::kCluster
        && ngx_strlchr(settings->key_prefix.data,
                       settings->key_prefix.data + settings->key_prefix.len,
                       '{')) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"key_prefix\" \"%V\" in limit_sliding_redis "
                           "\"%V\" must have no \"{\" with "
                           "\"topology cluster\"",
                           &settings->key_prefix, &settings->name);
        return NGX_CONF_ERROR;
    }

    return check_sentinel(cf, settings);
}

/* What is of sentinels needs them. */

static char *check_sentinel(ngx_conf_t *cf, Settings *settings)
{
    char *word;

    if (settings->topology == Topology::kSentinel) {
        return NGX_CONF_OK;
    }

    if (settings->sentinel.master.len) {
        word = "sentinel_master";

    } else if (settings->sentinel.credentials.user.len) {
        word = "sentinel_user";

    } else if (settings->sentinel.credentials.password.data) {
        word = "sentinel_password";

    } else {
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%s\" in limit_sliding_redis \"%V\" "
                       "needs \"topology sentinel\"",
                       word, &settings->name);
    return NGX_CONF_ERROR;
}

} // namespace limit_sliding
