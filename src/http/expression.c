
/*
 * Copyright (C) the limit_sliding authors
 */


/* Values of parameters that may hold variables: keys, rates and costs. */


#include "http/http.h"


static ngx_int_t ngx_http_limit_sliding_get_rate(ngx_http_request_t *r,
    ngx_http_limit_sliding_limit_t *limit, limit_sliding_claim_t *claim);
static ngx_int_t ngx_http_limit_sliding_get_cost(ngx_http_request_t *r,
    ngx_http_limit_sliding_limit_t *limit, limit_sliding_claim_t *claim);


char *
ngx_http_limit_sliding_compile(ngx_conf_t *cf, ngx_str_t *text,
    ngx_http_limit_sliding_value_t *value)
{
    u_char                            *p, *last;
    ngx_str_t                          name;
    ngx_http_compile_complex_value_t   ccv;

    last = text->data + text->len;

    for (p = text->data; p < last; p++) {

        /* nginx would not say which name */

        if (*p == '$') {
            p += (p + 1 < last && p[1] == '{') ? 2 : 1;

            if (p >= last || !ngx_http_limit_sliding_is_word(*p)) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid variable name in \"%V\"", text);
                return NGX_CONF_ERROR;
            }
        }
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = text;
    ccv.complex_value = &value->complex;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    value->index = NGX_ERROR;

    /* captures of regular expressions are not variables with an index */

    if (text->data[0] != '$'
        || (text->data[1] >= '0' && text->data[1] <= '9'))
    {
        return NGX_CONF_OK;
    }

    name.data = text->data + 1;
    name.len = text->len - 1;

    for (p = name.data; p < last; p++) {
        if (!ngx_http_limit_sliding_is_word(*p)) {
            return NGX_CONF_OK;
        }
    }

    value->index = ngx_http_get_variable_index(cf, &name);

    return value->index == NGX_ERROR ? NGX_CONF_ERROR : NGX_CONF_OK;
}


/* Sets *value if there is a variable in the parameter, else *rate. */

char *
ngx_http_limit_sliding_rate_value(ngx_conf_t *cf,
    ngx_http_limit_sliding_param_t *param,
    ngx_http_limit_sliding_value_t **value, limit_sliding_rate_t *rate)
{
    *value = NULL;

    if (ngx_http_script_variables_count(&param->value)) {
        *value = ngx_palloc(cf->pool, sizeof(ngx_http_limit_sliding_value_t));
        if (*value == NULL) {
            return NGX_CONF_ERROR;
        }

        return ngx_http_limit_sliding_compile(cf, &param->value, *value);
    }

    if (!limit_sliding_rate_parse((char *) param->value.data,
                                  param->value.len, rate))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid rate \"%V\", it must be a positive "
                           "integer, with \"r/s\", \"r/m\", \"r/h\", \"r/d\" "
                           "or alone, or hold a variable", &param->word);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* `word`, `file` and `line` are those to blame. */

ngx_int_t
ngx_http_limit_sliding_rate_limit(ngx_conf_t *cf, ngx_str_t *word,
    limit_sliding_rate_t *rate, uint64_t window_ms, uint32_t *limit,
    u_char *file, ngx_uint_t line)
{
    uint64_t  n;

    n = limit_sliding_rate_limit(rate, window_ms);

    if (n < 1 || n > LIMIT_SLIDING_LIMIT_MAX) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"%V\" allows %s%uL requests in a window of %uL ms, "
                      "it must be between 1 and %uD in %s:%ui",
                      word, n == UINT64_MAX ? "more than " : "", n,
                      window_ms, LIMIT_SLIDING_LIMIT_MAX, file, line);
        return NGX_ERROR;
    }

    *limit = (uint32_t) n;

    return NGX_OK;
}


/*
 * Completes the claim of a limit whose rate, cost or time of counting is not
 * that of a plain one.  NGX_DECLINED: the request is not limited.
 */

ngx_int_t
ngx_http_limit_sliding_evaluate(ngx_http_request_t *r,
    ngx_http_limit_sliding_limit_t *limit, limit_sliding_claim_t *claim)
{
    ngx_int_t  rc;

    rc = ngx_http_limit_sliding_get_rate(r, limit, claim);

    /* for the API, which has no request to evaluate variables for */

    if (limit->rates[0] && rc != NGX_ERROR) {
        limit_sliding_limit_cache_set(limit->zone->aside.last, claim->hash,
                                      rc == NGX_OK ? claim->limit
                                                   : LIMIT_SLIDING_OWN_OFF);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    claim->look = (limit->count_status != NULL);

    return ngx_http_limit_sliding_get_cost(r, limit, claim);
}


static ngx_int_t
ngx_http_limit_sliding_get_rate(ngx_http_request_t *r,
    ngx_http_limit_sliding_limit_t *limit, limit_sliding_claim_t *claim)
{
    ngx_str_t                        text;
    ngx_http_limit_sliding_value_t **value;

    for (value = limit->rates; *value; value++) {

        if (ngx_http_limit_sliding_get(r, *value, &text) != NGX_OK) {
            return NGX_ERROR;
        }

        if (text.len == 0) {
            continue;
        }

        if (text.len == 3 && ngx_strncmp(text.data, "off", 3) == 0) {
            return NGX_DECLINED;
        }

        if (ngx_http_limit_sliding_parse_rate(&text, claim->policy->window_ms,
                                              &claim->limit)
            == NGX_OK)
        {
            return NGX_OK;
        }

        ngx_http_limit_sliding_log_bad_value(r, limit->zone, "rate", &text);
    }

    return claim->limit ? NGX_OK : NGX_DECLINED;
}


/* A rate of a request, as a limit. */

ngx_int_t
ngx_http_limit_sliding_parse_rate(ngx_str_t *text, uint64_t window_ms,
    uint32_t *limit)
{
    uint64_t              n;
    limit_sliding_rate_t  rate;

    if (!limit_sliding_rate_parse((char *) text->data, text->len, &rate)) {
        return NGX_ERROR;
    }

    n = limit_sliding_rate_limit(&rate, window_ms);

    if (n < 1 || n > LIMIT_SLIDING_LIMIT_MAX) {
        return NGX_ERROR;
    }

    *limit = (uint32_t) n;

    return NGX_OK;
}


/* The claim has the cost that an empty or bad value counts as. */

static ngx_int_t
ngx_http_limit_sliding_get_cost(ngx_http_request_t *r,
    ngx_http_limit_sliding_limit_t *limit, limit_sliding_claim_t *claim)
{
    ngx_int_t  cost;
    ngx_str_t  text;

    if (limit->cost_value == NULL) {
        return NGX_OK;
    }

    if (ngx_http_limit_sliding_get(r, limit->cost_value, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        return NGX_OK;
    }

    cost = ngx_atoi(text.data, text.len);

    if (cost == NGX_ERROR || cost > (ngx_int_t) NGX_MAX_UINT32_VALUE) {
        ngx_http_limit_sliding_log_bad_value(r, limit->zone, "cost", &text);
        return NGX_OK;
    }

    claim->cost = (uint32_t) cost;

    return NGX_OK;
}
