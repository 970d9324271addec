
/*
 * Copyright (C) the limit_sliding authors
 */


#include "ngx_http_limit_sliding.h"


typedef struct {
    ngx_str_t   name;
    ngx_str_t  *value;
} ngx_http_limit_sliding_param_t;


static char *ngx_http_limit_sliding_params(ngx_conf_t *cf, ngx_uint_t i,
    ngx_http_limit_sliding_param_t *params);
static char *ngx_http_limit_sliding_zone_size(ngx_conf_t *cf, ngx_str_t *value,
    ngx_str_t *name, size_t *size);
static char *ngx_http_limit_sliding_zone_key(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t *value);
static char *ngx_http_limit_sliding_zone_rate(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t *rate, ngx_str_t *window);
static char *ngx_http_limit_sliding_zone_window(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, limit_sliding_rate_t *rate,
    ngx_str_t *text, ngx_str_t *window);
static char *ngx_http_limit_sliding_zone_full(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t *value);
static char *ngx_http_limit_sliding_off(ngx_conf_t *cf,
    ngx_http_limit_sliding_conf_t *lscf);


static ngx_str_t  ngx_http_limit_sliding_log_levels[] = {
    ngx_string("off"),
    ngx_string("info"),
    ngx_string("notice"),
    ngx_string("warn"),
    ngx_string("error")
};

static ngx_uint_t  ngx_http_limit_sliding_log_level_values[] = {
    0,
    NGX_LOG_INFO,
    NGX_LOG_NOTICE,
    NGX_LOG_WARN,
    NGX_LOG_ERR
};


#define ngx_http_limit_sliding_is(value, text)                                \
    ((value)->len == sizeof(text) - 1                                         \
     && ngx_strncmp((value)->data, text, sizeof(text) - 1) == 0)


char *
ngx_http_limit_sliding_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    size_t                          size;
    ngx_str_t                      *value, name, zone_text, rate, window, full;
    ngx_http_limit_sliding_zone_t  *zone;

    ngx_http_limit_sliding_param_t  params[] = {
        { ngx_string("zone="), &zone_text },
        { ngx_string("rate="), &rate },
        { ngx_string("window="), &window },
        { ngx_string("full="), &full },
        { ngx_null_string, NULL }
    };

    if (ngx_http_limit_sliding_params(cf, 2, params) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (zone_text.data == NULL || rate.data == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"%s\" parameter", &cmd->name,
                           zone_text.data == NULL ? "zone" : "rate");
        return NGX_CONF_ERROR;
    }

    if (ngx_http_limit_sliding_zone_size(cf, &zone_text, &name, &size)
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
        || ngx_http_limit_sliding_zone_rate(cf, zone, &rate, &window)
           != NGX_CONF_OK
        || ngx_http_limit_sliding_zone_full(cf, zone, &full) != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (ngx_http_limit_sliding_add_zone(cf, zone, size) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/*
 * Takes the arguments from the i-th on apart.  A parameter that is not given
 * has a value without data.
 */

static char *
ngx_http_limit_sliding_params(ngx_conf_t *cf, ngx_uint_t i,
    ngx_http_limit_sliding_param_t *params)
{
    ngx_str_t                       *value;
    ngx_http_limit_sliding_param_t  *param;

    for (param = params; param->value; param++) {
        ngx_str_null(param->value);
    }

    value = cf->args->elts;

    for ( /* void */ ; i < cf->args->nelts; i++) {

        for (param = params; param->value; param++) {
            if (value[i].len > param->name.len
                && ngx_strncmp(value[i].data, param->name.data,
                               param->name.len)
                   == 0)
            {
                break;
            }
        }

        if (param->value == NULL) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid parameter \"%V\"", &value[i]);
            return NGX_CONF_ERROR;
        }

        if (param->value->data) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate parameter \"%V\"", &value[i]);
            return NGX_CONF_ERROR;
        }

        param->value->data = value[i].data + param->name.len;
        param->value->len = value[i].len - param->name.len;
    }

    return NGX_CONF_OK;
}


/* "name:size" */

static char *
ngx_http_limit_sliding_zone_size(ngx_conf_t *cf, ngx_str_t *value,
    ngx_str_t *name, size_t *size)
{
    u_char     *p, *last;
    ssize_t     n;
    ngx_str_t   s;

    last = value->data + value->len;

    p = ngx_strlchr(value->data, last, ':');

    if (p == NULL || p == value->data) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid zone \"%V\", it must be \"name:size\"",
                           value);
        return NGX_CONF_ERROR;
    }

    name->data = value->data;
    name->len = p - value->data;

    s.data = p + 1;
    s.len = last - s.data;

    n = ngx_parse_size(&s);

    if (n == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid zone size \"%V\"", value);
        return NGX_CONF_ERROR;
    }

    if (n < (ssize_t) ngx_max(32 * 1024, 8 * ngx_pagesize)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone \"%V\" is too small, the minimum is %uzk",
                           value,
                           ngx_max(32 * 1024, 8 * ngx_pagesize) / 1024);
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
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t *text, ngx_str_t *window)
{
    uint64_t              limit;
    limit_sliding_rate_t  rate;

    if (!limit_sliding_rate_parse((char *) text->data, text->len, &rate)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid rate \"%V\", it must be a positive "
                           "integer, with \"r/s\", \"r/m\", \"r/h\", \"r/d\" "
                           "or alone", text);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_limit_sliding_zone_window(cf, zone, &rate, text, window)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    limit = limit_sliding_rate_limit(&rate, zone->policy.window_ms);

    if (limit < 1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "rate \"%V\" allows %uL requests in a window of "
                           "%uL ms, it must allow at least 1",
                           text, limit, zone->policy.window_ms);
        return NGX_CONF_ERROR;
    }

    if (limit > LIMIT_SLIDING_LIMIT_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "rate \"%V\" allows %uL requests in a window of "
                           "%uL ms, the maximum is %uD",
                           text, limit, zone->policy.window_ms,
                           LIMIT_SLIDING_LIMIT_MAX);
        return NGX_CONF_ERROR;
    }

    zone->limit = (uint32_t) limit;

    return NGX_CONF_OK;
}


/* By default the window is the unit of the rate. */

static char *
ngx_http_limit_sliding_zone_window(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, limit_sliding_rate_t *rate,
    ngx_str_t *text, ngx_str_t *window)
{
    ngx_int_t  ms;

    if (window->data == NULL) {

        if (rate->per_ms == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "rate \"%V\" has no unit and needs the "
                               "\"window\" parameter", text);
            return NGX_CONF_ERROR;
        }

        zone->policy.window_ms = rate->per_ms;

        return NGX_CONF_OK;
    }

    ms = ngx_parse_time(window, 0);

    if (ms == (ngx_int_t) NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid window \"%V\"", window);
        return NGX_CONF_ERROR;
    }

    if (ms < (ngx_int_t) LIMIT_SLIDING_WINDOW_MIN_MS
        || ms > (ngx_int_t) LIMIT_SLIDING_WINDOW_MAX_MS)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "window \"%V\" must be between 100ms and 30d",
                           window);
        return NGX_CONF_ERROR;
    }

    zone->policy.window_ms = ms;

    return NGX_CONF_OK;
}


static char *
ngx_http_limit_sliding_zone_full(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t *value)
{
    if (value->data == NULL || ngx_http_limit_sliding_is(value, "evict")) {
        zone->policy.full = LIMIT_SLIDING_EVICT;
        return NGX_CONF_OK;
    }

    if (ngx_http_limit_sliding_is(value, "deny")) {
        zone->policy.full = LIMIT_SLIDING_DENY;
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" of \"full\", it must be "
                       "\"evict\" or \"deny\"", value);
    return NGX_CONF_ERROR;
}


char *
ngx_http_limit_sliding(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_limit_sliding_conf_t  *lscf = conf;

    ngx_str_t                       *value, name;
    ngx_uint_t                       i;
    ngx_http_limit_sliding_zone_t   *zone;
    ngx_http_limit_sliding_limit_t  *limit;

    ngx_http_limit_sliding_param_t  params[] = {
        { ngx_string("zone="), &name },
        { ngx_null_string, NULL }
    };

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_http_limit_sliding_is(&value[1], "off")) {
        return ngx_http_limit_sliding_off(cf, lscf);
    }

    if (lscf->limits == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"limit_sliding off\" stands alone, it cannot be "
                           "combined with \"%V\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_limit_sliding_params(cf, 1, params) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (name.data == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" parameter", &cmd->name);
        return NGX_CONF_ERROR;
    }

    zone = ngx_http_limit_sliding_get_zone(cf, &name);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (lscf->limits == NGX_CONF_UNSET_PTR) {
        lscf->limits = ngx_array_create(cf->pool, 2,
                                       sizeof(ngx_http_limit_sliding_limit_t));
        if (lscf->limits == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    limit = lscf->limits->elts;

    for (i = 0; i < lscf->limits->nelts; i++) {
        if (limit[i].zone == zone) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate limit by zone \"%V\"", &name);
            return NGX_CONF_ERROR;
        }
    }

    limit = ngx_array_push(lscf->limits);
    if (limit == NULL) {
        return NGX_CONF_ERROR;
    }

    limit->zone = zone;

    return NGX_CONF_OK;
}


static char *
ngx_http_limit_sliding_off(ngx_conf_t *cf, ngx_http_limit_sliding_conf_t *lscf)
{
    if (lscf->limits == NULL) {
        return "\"off\" is duplicate";
    }

    if (lscf->limits != NGX_CONF_UNSET_PTR) {
        return "\"off\" stands alone, it cannot be combined with a zone";
    }

    lscf->limits = NULL;

    return NGX_CONF_OK;
}


char *
ngx_http_limit_sliding_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_limit_sliding_conf_t  *lscf = conf;

    ngx_int_t   code;
    ngx_str_t  *value;

    if (lscf->status_code != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    code = ngx_atoi(value[1].data, value[1].len);

    if (code < 400 || code > 599) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid status \"%V\", it must be between 400 "
                           "and 599", &value[1]);
        return NGX_CONF_ERROR;
    }

    lscf->status_code = code;

    return NGX_CONF_OK;
}


char *
ngx_http_limit_sliding_log_level(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_limit_sliding_conf_t  *lscf = conf;

    ngx_int_t   ms;
    ngx_str_t  *value, *level, every;
    ngx_uint_t  i, n;

    ngx_http_limit_sliding_param_t  params[] = {
        { ngx_string("every="), &every },
        { ngx_null_string, NULL }
    };

    if (lscf->log_level != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;
    level = ngx_http_limit_sliding_log_levels;
    n = sizeof(ngx_http_limit_sliding_log_levels) / sizeof(ngx_str_t);

    for (i = 0; i < n; i++) {
        if (value[1].len == level[i].len
            && ngx_strncmp(value[1].data, level[i].data, level[i].len) == 0)
        {
            break;
        }
    }

    if (i == n) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid log level \"%V\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_limit_sliding_params(cf, 2, params) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    lscf->log_level = ngx_http_limit_sliding_log_level_values[i];
    lscf->log_every = 0;

    if (every.data) {
        ms = ngx_parse_time(&every, 0);

        if (ms == (ngx_int_t) NGX_ERROR || ms == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid time \"every=%V\"", &every);
            return NGX_CONF_ERROR;
        }

        lscf->log_every = ms;
    }

    return NGX_CONF_OK;
}
