
/*
 * Copyright (C) the limit_sliding authors
 */

/* What is called for every request, inline; a part of the header above. */

#ifndef LIMIT_SLIDING_HTTP_CONTEXT_HPP
#define LIMIT_SLIDING_HTTP_CONTEXT_HPP

#include "http/http.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Where a call would cost as much as what it does. */

#define inline inline __attribute__((always_inline))

Context *find_ctx(ngx_http_request_t *r);
Context *extend_ctx(ngx_http_request_t *r, Context *octx, ngx_uint_t nclaims);
ngx_uint_t is_decided(Context *ctx, ZoneConf *zone);
void context_cleanup(void *data);

/* A single variable, as most are, is read directly.  May yield nothing. */

static ngx_inline ngx_int_t get_text(ngx_http_request_t *r, Expression *value,
                                     ngx_str_t *text)
{
    ngx_int_t rc;
    ngx_str_t s;
    ngx_http_variable_value_t *vv;

    if (value->index == NGX_ERROR) {
        rc = ngx_http_complex_value(r, &value->complex, &s);
        *text = s;
        return rc;
    }

    vv = ngx_http_get_flushed_variable(r, value->index);

    if (vv == NULL || vv->not_found) {
        ngx_str_null(text);
        return NGX_OK;
    }

    text->len = vv->len;
    text->data = vv->data;

    return NGX_OK;
}

/* Nothing is lost where two workers share counters, see init_counters(). */

static ngx_inline void tally(ZoneConf *zone, Count count)
{
    ngx_atomic_t *counter;

    counter = (ngx_atomic_t *)&zone->counters->requests[count];

    (void)ngx_atomic_fetch_add(counter, 1);
}

/* NULL: nothing was decided for the request yet. */

static ngx_inline Context *get_ctx(ngx_http_request_t *r)
{
    Context *ctx;

    r = r->main;

    ctx = ngx_http_get_module_ctx(r, ngx_http_limit_sliding_module);

    if (ctx == NULL && (r->internal || r->filter_finalize)) {
        return find_ctx(r);
    }

    return ctx;
}

static ngx_inline Context *create_ctx(ngx_http_request_t *r, ngx_uint_t nclaims)
{
    Context *ctx;

    ctx = ngx_palloc(r->pool,
                     offsetof(Context, claims) + nclaims * sizeof(Claim));
    if (ctx == NULL) {
        return NULL;
    }

    /* as ngx_pool_cleanup_add() does, in one allocation */

    ctx->cleanup.handler = context_cleanup;
    ctx->cleanup.data = ctx;
    ctx->cleanup.next = r->pool->cleanup;
    r->pool->cleanup = &ctx->cleanup;

    ctx->status = Status::kPassed;
    ctx->waiting = 0;
    ctx->nclaims = 0;
    ctx->wait = NULL;

    ngx_http_set_ctx(r, ctx, ngx_http_limit_sliding_module);

    return ctx;
}

/* fallback */
ngx_int_t fall_back(Context *ctx, RemoteWait *wait);
void keep_warm(Claim *claims, ngx_uint_t nclaims, uint64_t now_ms);

} // namespace limit_sliding

#endif
