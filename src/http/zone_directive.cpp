
/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/algorithm_param.hpp"
#include "http/expression.hpp"
#include "http/module.hpp"
#include "http/parameter.hpp"
#include "http/redis_directive.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

/* The parameters of limit_sliding_zone; the first two must be given. */

enum {
    ZONE,
    RATE,
    WINDOW,
    ALGORITHM,
    PRECISION,
    BURST,
    FULL,
    REDIS,
    LEASE,
    TOP
};

static char *zone_size(ngx_conf_t *cf, Param *param, ngx_str_t *name,
                       size_t *size);
static char *zone_key(ngx_conf_t *cf, ZoneConf *zone, ngx_str_t *value);
static ngx_uint_t is_variable(ngx_str_t *text, char *name);
static char *zone_rate(ngx_conf_t *cf, ZoneConf *zone, Param *param,
                       Param *window);
static char *zone_window(ngx_conf_t *cf, ZoneConf *zone, Param *param);
static char *zone_full(ngx_conf_t *cf, ZoneConf *zone, Param *param);
static char *zone_top(ngx_conf_t *cf, ZoneConf *zone, Param *param);

extern "C" char *ngx_http_limit_sliding_zone(ngx_conf_t *cf, ngx_command_t *cmd,
                                             void *conf)
{
    size_t size;
    ngx_str_t *value, name;
    ngx_uint_t i;
    ZoneConf *zone;

    Param params[]
        = {{ngx_string("zone="), ngx_null_string, ngx_null_string},
           {ngx_string("rate="), ngx_null_string, ngx_null_string},
           {ngx_string("window="), ngx_null_string, ngx_null_string},
           {ngx_string("algorithm="), ngx_null_string, ngx_null_string},
           {ngx_string("precision="), ngx_null_string, ngx_null_string},
           {ngx_string("burst="), ngx_null_string, ngx_null_string},
           {ngx_string("full="), ngx_null_string, ngx_null_string},
           {ngx_string("redis="), ngx_null_string, ngx_null_string},
           {ngx_string("lease="), ngx_null_string, ngx_null_string},
           {ngx_string("top="), ngx_null_string, ngx_null_string},
           {ngx_null_string, ngx_null_string, ngx_null_string}};

    value = cf->args->elts;

    if (ngx_strncmp(value[1].data, "zone=", 5) == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have a key before \"%V\"", &cmd->name,
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    if (parse_params(cf, 2, params) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    for (i = ZONE; i <= RATE; i++) {
        if (params[i].word.len == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" must have \"%V\" parameter", &cmd->name,
                               &params[i].name);
            return NGX_CONF_ERROR;
        }
    }

    if (zone_size(cf, &params[ZONE], &name, &size) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    zone = get_zone(cf, &name);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->shm_zone) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate zone \"%V\", it is already bound to "
                           "key \"%V\"",
                           &name, &zone->key.complex.value);
        return NGX_CONF_ERROR;
    }

    if (zone_key(cf, zone, &value[1]) != NGX_CONF_OK
        || zone_rate(cf, zone, &params[RATE], &params[WINDOW]) != NGX_CONF_OK
        || set_algorithm(cf, zone, &params[ALGORITHM], &params[PRECISION],
                         &params[BURST])
               != NGX_CONF_OK
        || zone_full(cf, zone, &params[FULL]) != NGX_CONF_OK
        || zone_redis(cf, zone, &params[REDIS]) != NGX_CONF_OK
        || zone_lease(cf, zone, &params[LEASE]) != NGX_CONF_OK
        || zone_top(cf, zone, &params[TOP]) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (add_zone(cf, zone, size) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}

/* "zone=name:size" */

static char *zone_size(ngx_conf_t *cf, Param *param, ngx_str_t *name,
                       size_t *size)
{
    size_t minimum;
    u_char *p, *last;
    ssize_t n;
    ngx_str_t s, *value;

    value = &param->value;
    last = value->data + value->len;

    p = ngx_strlchr(value->data, last, ':');

    if (p == NULL || p == value->data) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid zone \"%V\", it must be "
                           "\"zone=name:size\"",
                           &param->word);
        return NGX_CONF_ERROR;
    }

    name->data = value->data;
    name->len = p - value->data;

    s.data = p + 1;
    s.len = last - s.data;

    n = ngx_parse_size(&s);

    if (n == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid zone size \"%V\"",
                           &param->word);
        return NGX_CONF_ERROR;
    }

    /* what nginx itself needs depends on the page */

    minimum = ngx_max(32 * 1024, 8 * ngx_pagesize);

    if ((size_t)n < minimum) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone \"%V\" is too small, the minimum is %uzk",
                           &param->word, minimum / 1024);
        return NGX_CONF_ERROR;
    }

    *size = n;

    return NGX_CONF_OK;
}

static char *zone_key(ngx_conf_t *cf, ZoneConf *zone, ngx_str_t *value)
{
    if (value->len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the key \"\" of zone \"%V\" is empty", &zone->name);
        return NGX_CONF_ERROR;
    }

    if (is_variable(value, "binary_remote_addr")) {
        zone->keys = KeyKind::kAddresses;

    } else if (is_variable(value, "limit_sliding_client")) {
        zone->keys = KeyKind::kClients;
    }

    return compile_expression(cf, value, &zone->key);
}

/* Whether a variable, as "$name" or "${name}", is all of the text. */

static ngx_uint_t is_variable(ngx_str_t *text, char *name)
{
    size_t len;
    u_char *p;

    len = ngx_strlen(name);
    p = text->data;

    if (text->len == len + sizeof("${}") - 1) {
        return p[0] == '$' && p[1] == '{' && p[text->len - 1] == '}'
               && ngx_strncasecmp(p + 2, (u_char *)name, len) == 0;
    }

    return text->len == len + 1 && p[0] == '$'
           && ngx_strncasecmp(p + 1, (u_char *)name, len) == 0;
}

static char *zone_rate(ngx_conf_t *cf, ZoneConf *zone, Param *param,
                       Param *window)
{
    Rate rate;

    ngx_memzero(&rate, sizeof(Rate));

    if (rate_value(cf, param, &zone->rate, &rate) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    zone->rate_text = param->value;

    /* by default the window is the unit of the rate */

    zone->policy.window_ms = rate.per_ms;

    if (window->word.len) {
        if (zone_window(cf, zone, window) != NGX_CONF_OK) {
            return NGX_CONF_ERROR;
        }

    } else if (rate.per_ms == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has no unit and needs the \"window=\" "
                           "parameter",
                           &param->word);
        return NGX_CONF_ERROR;
    }

    if (zone->rate) {
        return NGX_CONF_OK;
    }

    if (rate_limit(cf, &param->word, &rate, zone->policy.window_ms,
                   &zone->limit, cf->conf_file->file.name.data,
                   cf->conf_file->line)
        != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}

static char *zone_window(ngx_conf_t *cf, ZoneConf *zone, Param *param)
{
    ngx_int_t ms;

    ms = ngx_parse_time(&param->value, 0);

    if (ms == (ngx_int_t)NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid window \"%V\"",
                           &param->word);
        return NGX_CONF_ERROR;
    }

    if (ms < (ngx_int_t)kWindowMinMs || ms > (ngx_int_t)kWindowMaxMs) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must be between 100ms and 30d",
                           &param->word);
        return NGX_CONF_ERROR;
    }

    zone->policy.window_ms = ms;

    return NGX_CONF_OK;
}

static char *zone_full(ngx_conf_t *cf, ZoneConf *zone, Param *param)
{
    if (param->word.len == 0 || ngx_strcmp(param->value.data, "evict") == 0) {
        zone->policy.full = WhenFull::kEvict;
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(param->value.data, "deny") == 0) {
        zone->policy.full = WhenFull::kDeny;
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\", it must be \"full=evict\" "
                       "or \"full=deny\"",
                       &param->word);
    return NGX_CONF_ERROR;
}

static char *zone_top(ngx_conf_t *cf, ZoneConf *zone, Param *param)
{
    zone->top = 1;

    if (param->word.len == 0 || ngx_strcmp(param->value.data, "on") == 0) {
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(param->value.data, "off") == 0) {
        zone->top = 0;
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\", it must be \"top=on\" "
                       "or \"top=off\"",
                       &param->word);
    return NGX_CONF_ERROR;
}

} // namespace limit_sliding
