
/*
 * Copyright (C) the limit_sliding authors
 */

/* Values of parameters that may hold variables: keys, rates and costs. */

#include "http/expression.hpp"

#include "http/context.hpp"
#include "http/count_status.hpp"
#include "http/limit_set.hpp"
#include "http/log.hpp"
#include "http/parameter.hpp"

namespace limit_sliding {

static ngx_int_t get_rate(ngx_http_request_t *r, Limit *limit, Claim *claim);
static ngx_int_t get_cost(ngx_http_request_t *r, Limit *limit, Claim *claim);

char *compile_expression(ngx_conf_t *cf, ngx_str_t *text, Expression *value)
{
    u_char *p, *last;
    ngx_str_t name;
    ngx_http_compile_complex_value_t ccv;

    last = text->data + text->len;

    for (p = text->data; p < last; p++) {

        /* nginx would not say which name */

        if (*p == '$') {
            p += (p + 1 < last && p[1] == '{') ? 2 : 1;

            if (p >= last || !is_word(*p)) {
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
        || (text->data[1] >= '0' && text->data[1] <= '9')) {
        return NGX_CONF_OK;
    }

    name.data = text->data + 1;
    name.len = text->len - 1;

    for (p = name.data; p < last; p++) {
        if (!is_word(*p)) {
            return NGX_CONF_OK;
        }
    }

    value->index = ngx_http_get_variable_index(cf, &name);

    return value->index == NGX_ERROR ? NGX_CONF_ERROR : NGX_CONF_OK;
}

/* Sets *value if there is a variable in the parameter, else *rate. */

char *rate_value(ngx_conf_t *cf, Param *param, Expression **value, Rate *rate)
{
    *value = NULL;

    if (ngx_http_script_variables_count(&param->value)) {
        *value = ngx_palloc(cf->pool, sizeof(Expression));
        if (*value == NULL) {
            return NGX_CONF_ERROR;
        }

        return compile_expression(cf, &param->value, *value);
    }

    if (!limit_sliding::rate_parse((char *)param->value.data, param->value.len,
                                   rate)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid rate \"%V\", it must be a positive "
                           "integer, with \"r/s\", \"r/m\", \"r/h\", \"r/d\" "
                           "or alone, or hold a variable",
                           &param->word);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}

/* `word`, `file` and `line` are those to blame. */

ngx_int_t rate_limit(ngx_conf_t *cf, ngx_str_t *word, Rate *rate,
                     uint64_t window_ms, uint32_t *limit, u_char *file,
                     ngx_uint_t line)
{
    uint64_t n;

    n = limit_sliding::rate_limit(rate, window_ms);

    if (n < 1 || n > kLimitMax) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"%V\" allows %s%uL requests in a window of %uL ms, "
                      "it must be between 1 and %uD in %s:%ui",
                      word, n == UINT64_MAX ? "more than " : "", n, window_ms,
                      kLimitMax, file, line);
        return NGX_ERROR;
    }

    *limit = (uint32_t)n;

    return NGX_OK;
}

/*
 * Completes the claim of a limit whose rate, cost or time of counting is not
 * that of a plain one.  NGX_DECLINED: the request is not limited.
 */

ngx_int_t evaluate_claim(ngx_http_request_t *r, Limit *limit, Claim *claim)
{
    ngx_int_t rc;

    rc = get_rate(r, limit, claim);

    /* for the API, which has no request to evaluate variables for */

    if (limit->rates[0] && rc != NGX_ERROR) {
        limit_sliding::limit_cache_set(limit->zone->aside.last, claim->hash,
                                       rc == NGX_OK ? claim->limit : kOwnOff);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    claim->look = (limit->count_status != NULL);

    return get_cost(r, limit, claim);
}

static ngx_int_t get_rate(ngx_http_request_t *r, Limit *limit, Claim *claim)
{
    ngx_str_t text;
    Expression **value;

    for (value = limit->rates; *value; value++) {

        if (get_text(r, *value, &text) != NGX_OK) {
            return NGX_ERROR;
        }

        if (text.len == 0) {
            continue;
        }

        if (text.len == 3 && ngx_strncmp(text.data, "off", 3) == 0) {
            return NGX_DECLINED;
        }

        if (parse_rate(&text, claim->policy->window_ms, &claim->limit)
            == NGX_OK) {
            return NGX_OK;
        }

        log_bad_value(r, limit->zone, "rate", &text);
    }

    return claim->limit ? NGX_OK : NGX_DECLINED;
}

/* A rate of a request, as a limit. */

ngx_int_t parse_rate(ngx_str_t *text, uint64_t window_ms, uint32_t *limit)
{
    uint64_t n;
    Rate rate;

    if (!limit_sliding::rate_parse((char *)text->data, text->len, &rate)) {
        return NGX_ERROR;
    }

    n = limit_sliding::rate_limit(&rate, window_ms);

    if (n < 1 || n > kLimitMax) {
        return NGX_ERROR;
    }

    *limit = (uint32_t)n;

    return NGX_OK;
}

/* The claim has the cost that an empty or bad value counts as. */

static ngx_int_t get_cost(ngx_http_request_t *r, Limit *limit, Claim *claim)
{
    ngx_int_t cost;
    ngx_str_t text;

    if (limit->cost_value == NULL) {
        return NGX_OK;
    }

    if (get_text(r, limit->cost_value, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        return NGX_OK;
    }

    cost = ngx_atoi(text.data, text.len);

    if (cost == NGX_ERROR || cost > (ngx_int_t)NGX_MAX_UINT32_VALUE) {
        log_bad_value(r, limit->zone, "cost", &text);
        return NGX_OK;
    }

    claim->cost = (uint32_t)cost;

    return NGX_OK;
}

} // namespace limit_sliding
