
/*
 * Copyright (C) the limit_sliding authors
 */


#include "http/http.h"


static ngx_int_t ngx_http_limit_sliding_status_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_limit_sliding_zone_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_limit_sliding_source_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_limit_sliding_number_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);


typedef enum {
    NGX_HTTP_LIMIT_SLIDING_LIMIT,
    NGX_HTTP_LIMIT_SLIDING_REMAINING,
    NGX_HTTP_LIMIT_SLIDING_RESET
} ngx_http_limit_sliding_number_e;


static ngx_http_variable_t  ngx_http_limit_sliding_vars[] = {

    { ngx_string("limit_sliding_status"), NULL,
      ngx_http_limit_sliding_status_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("limit_sliding_zone"), NULL,
      ngx_http_limit_sliding_zone_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("limit_sliding_limit"), NULL,
      ngx_http_limit_sliding_number_variable, NGX_HTTP_LIMIT_SLIDING_LIMIT,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("limit_sliding_remaining"), NULL,
      ngx_http_limit_sliding_number_variable, NGX_HTTP_LIMIT_SLIDING_REMAINING,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("limit_sliding_reset"), NULL,
      ngx_http_limit_sliding_number_variable, NGX_HTTP_LIMIT_SLIDING_RESET,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("limit_sliding_source"), NULL,
      ngx_http_limit_sliding_source_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("limit_sliding_client"), NULL,
      ngx_http_limit_sliding_client_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


/* By ngx_http_limit_sliding_status_e. */

static ngx_str_t  ngx_http_limit_sliding_statuses[] = {
    ngx_string("PASSED"),
    ngx_string("DELAYED_DRY_RUN"),
    ngx_string("DELAYED"),
    ngx_string("REJECTED_DRY_RUN"),
    ngx_string("REJECTED")
};


/* By ngx_http_limit_sliding_source_e. */

ngx_str_t  ngx_http_limit_sliding_sources[] = {
    ngx_string("local"),
    ngx_string("redis"),
    ngx_string("lease"),
    ngx_string("cache"),
    ngx_string("fallback")
};


ngx_int_t
ngx_http_limit_sliding_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_limit_sliding_vars; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


/* The context if some limit was accounted, else NULL and *v is not found. */

static ngx_http_limit_sliding_ctx_t *
ngx_http_limit_sliding_variable_ctx(ngx_http_request_t *r,
    ngx_http_variable_value_t *v)
{
    ngx_http_limit_sliding_ctx_t  *ctx;

    ctx = ngx_http_limit_sliding_get_ctx(r);

    if (ctx == NULL || ctx->nclaims == 0) {
        v->not_found = 1;
        return NULL;
    }

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return ctx;
}


static ngx_int_t
ngx_http_limit_sliding_status_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_limit_sliding_ctx_t  *ctx;

    ctx = ngx_http_limit_sliding_variable_ctx(r, v);

    if (ctx) {
        v->len = ngx_http_limit_sliding_statuses[ctx->status].len;
        v->data = ngx_http_limit_sliding_statuses[ctx->status].data;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_limit_sliding_zone_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_limit_sliding_ctx_t    *ctx;
    ngx_http_limit_sliding_limit_t  *limit;

    ctx = ngx_http_limit_sliding_variable_ctx(r, v);

    if (ctx) {
        limit = ctx->described->data;
        v->len = limit->zone->name.len;
        v->data = limit->zone->name.data;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_limit_sliding_source_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                        *source;
    ngx_http_limit_sliding_ctx_t     *ctx;
    ngx_http_limit_sliding_remote_t  *remote;

    ctx = ngx_http_limit_sliding_variable_ctx(r, v);

    if (ctx) {
        remote = ctx->described->remote;
        source = &ngx_http_limit_sliding_sources[remote ? remote->source : 0];

        v->len = source->len;
        v->data = source->data;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_limit_sliding_number_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    uint64_t                       number;
    limit_sliding_verdict_t        verdict;
    ngx_http_limit_sliding_ctx_t  *ctx;

    ctx = ngx_http_limit_sliding_variable_ctx(r, v);
    if (ctx == NULL) {
        return NGX_OK;
    }

    limit_sliding_claim_describe(ctx->described, ctx->now_ms, &verdict);

    switch (data) {
    case NGX_HTTP_LIMIT_SLIDING_LIMIT:
        number = verdict.limit;
        break;

    case NGX_HTTP_LIMIT_SLIDING_REMAINING:
        number = verdict.remaining;
        break;

    default: /* NGX_HTTP_LIMIT_SLIDING_RESET */
        number = limit_sliding_seconds(verdict.reset_ms);
        break;
    }

    v->data = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (v->data == NULL) {
        return NGX_ERROR;
    }

    v->len = ngx_sprintf(v->data, "%uL", number) - v->data;

    return NGX_OK;
}
