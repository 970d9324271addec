
/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/variables.hpp"

#include "http/client_address.hpp"
#include "http/context.hpp"
#include "http/limit_set.hpp"

namespace limit_sliding {

static ngx_int_t status_variable(ngx_http_request_t *r,
                                 ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t zone_variable(ngx_http_request_t *r,
                               ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t source_variable(ngx_http_request_t *r,
                                 ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t number_variable(ngx_http_request_t *r,
                                 ngx_http_variable_value_t *v, uintptr_t data);

enum class NumberKind { kLimit, kRemaining, kReset };

static ngx_http_variable_t variables_table[] = {

    {ngx_string("limit_sliding_status"), NULL, status_variable, 0,
     NGX_HTTP_VAR_NOCACHEABLE, 0},

    {ngx_string("limit_sliding_zone"), NULL, zone_variable, 0,
     NGX_HTTP_VAR_NOCACHEABLE, 0},

    {ngx_string("limit_sliding_limit"), NULL, number_variable,
     index_of(NumberKind::kLimit), NGX_HTTP_VAR_NOCACHEABLE, 0},

    {ngx_string("limit_sliding_remaining"), NULL, number_variable,
     index_of(NumberKind::kRemaining), NGX_HTTP_VAR_NOCACHEABLE, 0},

    {ngx_string("limit_sliding_reset"), NULL, number_variable,
     index_of(NumberKind::kReset), NGX_HTTP_VAR_NOCACHEABLE, 0},

    {ngx_string("limit_sliding_source"), NULL, source_variable, 0,
     NGX_HTTP_VAR_NOCACHEABLE, 0},

    {ngx_string("limit_sliding_client"), NULL, client_variable, 0,
     NGX_HTTP_VAR_NOCACHEABLE, 0},

    ngx_http_null_variable};

/* By Status. */

static ngx_str_t statuses[] = {
    ngx_string("PASSED"), ngx_string("DELAYED_DRY_RUN"), ngx_string("DELAYED"),
    ngx_string("REJECTED_DRY_RUN"), ngx_string("REJECTED")};

/* By Source. */

ngx_str_t source_names[]
    = {ngx_string("local"), ngx_string("redis"), ngx_string("lease"),
       ngx_string("cache"), ngx_string("fallback")};

ngx_int_t add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t *var, *v;

    for (v = variables_table; v->name.len; v++) {
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

static Context *variable_ctx(ngx_http_request_t *r,
                             ngx_http_variable_value_t *v)
{
    Context *ctx;

    ctx = get_ctx(r);

    if (ctx == NULL || ctx->nclaims == 0) {
        v->not_found = 1;
        return NULL;
    }

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return ctx;
}

static ngx_int_t status_variable(ngx_http_request_t *r,
                                 ngx_http_variable_value_t *v, uintptr_t data)
{
    Context *ctx;

    ctx = variable_ctx(r, v);

    if (ctx) {
        v->len = statuses[index_of(ctx->status)].len;
        v->data = statuses[index_of(ctx->status)].data;
    }

    return NGX_OK;
}

static ngx_int_t zone_variable(ngx_http_request_t *r,
                               ngx_http_variable_value_t *v, uintptr_t data)
{
    Context *ctx;
    Limit *limit;

    ctx = variable_ctx(r, v);

    if (ctx) {
        limit = ctx->described->data;
        v->len = limit->zone->name.len;
        v->data = limit->zone->name.data;
    }

    return NGX_OK;
}

static ngx_int_t source_variable(ngx_http_request_t *r,
                                 ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t *source;
    Context *ctx;
    RemoteClaim *remote;

    ctx = variable_ctx(r, v);

    if (ctx) {
        remote = ctx->described->remote;
        source = &source_names[remote ? index_of(remote->source) : 0];

        v->len = source->len;
        v->data = source->data;
    }

    return NGX_OK;
}

static ngx_int_t number_variable(ngx_http_request_t *r,
                                 ngx_http_variable_value_t *v, uintptr_t data)
{
    uint64_t number;
    Verdict verdict;
    Context *ctx;

    ctx = variable_ctx(r, v);
    if (ctx == NULL) {
        return NGX_OK;
    }

    limit_sliding::claim_describe(ctx->described, ctx->now_ms, &verdict);

    switch (static_cast<NumberKind>(data)) {
    case NumberKind::kLimit:
        number = verdict.limit;
        break;

    case NumberKind::kRemaining:
        number = verdict.remaining;
        break;

    default: /* NumberKind::kReset */
        number = limit_sliding::seconds(verdict.reset_ms);
        break;
    }

    v->data = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (v->data == NULL) {
        return NGX_ERROR;
    }

    v->len = ngx_sprintf(v->data, "%uL", number) - v->data;

    return NGX_OK;
}

} // namespace limit_sliding
