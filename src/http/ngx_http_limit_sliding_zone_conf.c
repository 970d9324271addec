
/*
 * Copyright (C) the limit_sliding authors
 */


#include "ngx_http_limit_sliding.h"


/* The parameters of limit_sliding_zone; the first two must be given. */

enum { ZONE, RATE, WINDOW, FULL };


static char *ngx_http_limit_sliding_zone_size(ngx_conf_t *cf,
    ngx_http_limit_sliding_param_t *param, ngx_str_t *name, size_t *size);
static char *ngx_http_limit_sliding_zone_key(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t *value);
static char *ngx_http_limit_sliding_zone_rate(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, ngx_http_limit_sliding_param_t *param,
    ngx_http_limit_sliding_param_t *window);
static char *ngx_http_limit_sliding_zone_window(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone,
    ngx_http_limit_sliding_param_t *param);
static char *ngx_http_limit_sliding_zone_full(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone,
    ngx_http_limit_sliding_param_t *param);


char *
ngx_http_limit_sliding_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    size_t                           size;
    ngx_str_t                       *value, name;
    ngx_uint_t                       i;
    ngx_http_limit_sliding_zone_t   *zone;

    ngx_http_limit_sliding_param_t   params[] = {
        { ngx_string("zone="), ngx_null_string, ngx_null_string },
        { ngx_string("rate="), ngx_null_string, ngx_null_string },
        { ngx_string("window="), ngx_null_string, ngx_null_string },
        { ngx_string("full="), ngx_null_string, ngx_null_string },
        { ngx_null_string, ngx_null_string, ngx_null_string }
    };

    if (ngx_http_limit_sliding_params(cf, 2, params) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    for (i = ZONE; i <= RATE; i++) {
        if (params[i].word.len == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" must have \"%V\" parameter",
                               &cmd->name, &params[i].name);
            return NGX_CONF_ERROR;
        }
    }

    if (ngx_http_limit_sliding_zone_size(cf, &params[ZONE], &name, &size)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    zone = ngx_http_limit_sliding_get_zone(cf, &name);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->shm_zone) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate zone \"%V\", it is already bound to "
                           "key \"%V\"", &name, &zone->key.value);
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    if (ngx_http_limit_sliding_zone_key(cf, zone, &value[1]) != NGX_CONF_OK
        || ngx_http_limit_sliding_zone_rate(cf, zone, &params[RATE],
                                            &params[WINDOW])
           != NGX_CONF_OK
        || ngx_http_limit_sliding_zone_full(cf, zone, &params[FULL])
           != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (ngx_http_limit_sliding_add_zone(cf, zone, size) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* "zone=name:size" */

static char *
ngx_http_limit_sliding_zone_size(ngx_conf_t *cf,
    ngx_http_limit_sliding_param_t *param, ngx_str_t *name, size_t *size)
{
    size_t      minimum;
    u_char     *p, *last;
    ssize_t     n;
    ngx_str_t   s, *value;

    value = &param->value;
    last = value->data + value->len;

    p = ngx_strlchr(value->data, last, ':');

    if (p == NULL || p == value->data) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid zone \"%V\", it must be "
                           "\"zone=name:size\"", &param->word);
        return NGX_CONF_ERROR;
    }

    name->data = value->data;
    name->len = p - value->data;

    s.data = p + 1;
    s.len = last - s.data;

    n = ngx_parse_size(&s);

    if (n == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid zone size \"%V\"", &param->word);
        return NGX_CONF_ERROR;
    }

    /* what nginx itself needs depends on the page */

    minimum = ngx_max(32 * 1024, 8 * ngx_pagesize);

    if ((size_t) n < minimum) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone \"%V\" is too small, the minimum is %uzk",
                           &param->word, minimum / 1024);
        return NGX_CONF_ERROR;
    }

    *size = n;

    return NGX_CONF_OK;
}


static char *
ngx_http_limit_sliding_zone_key(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t *value)
{
    size_t                             i;
    ngx_str_t                          name;
    ngx_http_compile_complex_value_t   ccv;

    if (value->len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the key \"\" of zone \"%V\" is empty",
                           &zone->name);
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = value;
    ccv.complex_value = &zone->key;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    /*
     * A key that is one variable and nothing else is read directly.  Captures
     * of regular expressions are not variables with an index.
     */

    zone->key_index = NGX_ERROR;

    if (value->data[0] != '$' || value->len == 1
        || (value->data[1] >= '0' && value->data[1] <= '9'))
    {
        return NGX_CONF_OK;
    }

    name.data = value->data + 1;
    name.len = value->len - 1;

    for (i = 0; i < name.len; i++) {
        if ((name.data[i] < 'a' || name.data[i] > 'z')
            && (name.data[i] < 'A' || name.data[i] > 'Z')
            && (name.data[i] < '0' || name.data[i] > '9')
            && name.data[i] != '_')
        {
            return NGX_CONF_OK;
        }
    }

    zone->key_index = ngx_http_get_variable_index(cf, &name);

    return zone->key_index == NGX_ERROR ? NGX_CONF_ERROR : NGX_CONF_OK;
}


static char *
ngx_http_limit_sliding_zone_rate(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, ngx_http_limit_sliding_param_t *param,
    ngx_http_limit_sliding_param_t *window)
{
    uint64_t              limit;
    limit_sliding_rate_t  rate;

    if (!limit_sliding_rate_parse((char *) param->value.data,
                                  param->value.len, &rate))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid rate \"%V\", it must be a positive "
                           "integer, with \"r/s\", \"r/m\", \"r/h\", \"r/d\" "
                           "or alone", &param->word);
        return NGX_CONF_ERROR;
    }

    /* by default the window is the unit of the rate */

    zone->policy.window_ms = rate.per_ms;

    if (window->word.len) {
        if (ngx_http_limit_sliding_zone_window(cf, zone, window)
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }

    } else if (rate.per_ms == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has no unit and needs the \"window=\" "
                           "parameter", &param->word);
        return NGX_CONF_ERROR;
    }

    limit = limit_sliding_rate_limit(&rate, zone->policy.window_ms);

    if (limit < 1 || limit > LIMIT_SLIDING_LIMIT_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" allows %uL requests in a window of %uL ms, "
                           "it must be between 1 and %uD",
                           &param->word, limit, zone->policy.window_ms,
                           LIMIT_SLIDING_LIMIT_MAX);
        return NGX_CONF_ERROR;
    }

    zone->limit = (uint32_t) limit;

    return NGX_CONF_OK;
}


static char *
ngx_http_limit_sliding_zone_window(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, ngx_http_limit_sliding_param_t *param)
{
    ngx_int_t  ms;

    ms = ngx_parse_time(&param->value, 0);

    if (ms == (ngx_int_t) NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid window \"%V\"", &param->word);
        return NGX_CONF_ERROR;
    }

    if (ms < (ngx_int_t) LIMIT_SLIDING_WINDOW_MIN_MS
        || ms > (ngx_int_t) LIMIT_SLIDING_WINDOW_MAX_MS)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must be between 100ms and 30d",
                           &param->word);
        return NGX_CONF_ERROR;
    }

    zone->policy.window_ms = ms;

    return NGX_CONF_OK;
}


static char *
ngx_http_limit_sliding_zone_full(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, ngx_http_limit_sliding_param_t *param)
{
    if (param->word.len == 0
        || ngx_strcmp(param->value.data, "evict") == 0)
    {
        zone->policy.full = LIMIT_SLIDING_EVICT;
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(param->value.data, "deny") == 0) {
        zone->policy.full = LIMIT_SLIDING_DENY;
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\", it must be \"full=evict\" "
                       "or \"full=deny\"", &param->word);
    return NGX_CONF_ERROR;
}
