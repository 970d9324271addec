
/*
 * Copyright (C) the limit_sliding authors
 */


/* What is called for every request, inline; a part of the header above. */


#ifndef _NGX_HTTP_LIMIT_SLIDING_CTX_H_INCLUDED_
#define _NGX_HTTP_LIMIT_SLIDING_CTX_H_INCLUDED_


#include "http/http.h"


/* Where a call would cost as much as what it does. */

#define ngx_http_limit_sliding_inline  inline __attribute__((always_inline))


ngx_http_limit_sliding_ctx_t *ngx_http_limit_sliding_find_ctx(
    ngx_http_request_t *r);
ngx_http_limit_sliding_ctx_t *ngx_http_limit_sliding_extend_ctx(
    ngx_http_request_t *r, ngx_http_limit_sliding_ctx_t *octx,
    ngx_uint_t nclaims);
ngx_uint_t ngx_http_limit_sliding_is_decided(
    ngx_http_limit_sliding_ctx_t *ctx, ngx_http_limit_sliding_zone_t *zone);
void ngx_http_limit_sliding_cleanup(void *data);


/* A single variable, as most are, is read directly.  May yield nothing. */

static ngx_inline ngx_int_t
ngx_http_limit_sliding_get(ngx_http_request_t *r,
    ngx_http_limit_sliding_value_t *value, ngx_str_t *text)
{
    ngx_int_t                   rc;
    ngx_str_t                   s;
    ngx_http_variable_value_t  *vv;

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

static ngx_inline void
ngx_http_limit_sliding_tally(ngx_http_limit_sliding_zone_t *zone,
    limit_sliding_count_t count)
{
    ngx_atomic_t  *counter;

    counter = (ngx_atomic_t *) &zone->counters->requests[count];

    (void) ngx_atomic_fetch_add(counter, 1);
}


/* NULL: nothing was decided for the request yet. */

static ngx_inline ngx_http_limit_sliding_ctx_t *
ngx_http_limit_sliding_get_ctx(ngx_http_request_t *r)
{
    ngx_http_limit_sliding_ctx_t  *ctx;

    r = r->main;

    ctx = ngx_http_get_module_ctx(r, ngx_http_limit_sliding_module);

    if (ctx == NULL && (r->internal || r->filter_finalize)) {
        return ngx_http_limit_sliding_find_ctx(r);
    }

    return ctx;
}


static ngx_inline ngx_http_limit_sliding_ctx_t *
ngx_http_limit_sliding_create_ctx(ngx_http_request_t *r, ngx_uint_t nclaims)
{
    ngx_http_limit_sliding_ctx_t  *ctx;

    ctx = ngx_palloc(r->pool,
                     offsetof(ngx_http_limit_sliding_ctx_t, claims)
                     + nclaims * sizeof(limit_sliding_claim_t));
    if (ctx == NULL) {
        return NULL;
    }

    /* as ngx_pool_cleanup_add() does, in one allocation */

    ctx->cleanup.handler = ngx_http_limit_sliding_cleanup;
    ctx->cleanup.data = ctx;
    ctx->cleanup.next = r->pool->cleanup;
    r->pool->cleanup = &ctx->cleanup;

    ctx->status = NGX_HTTP_LIMIT_SLIDING_PASSED;
    ctx->waiting = 0;
    ctx->nclaims = 0;
    ctx->wait = NULL;

    ngx_http_set_ctx(r, ctx, ngx_http_limit_sliding_module);

    return ctx;
}


/* fallback */
ngx_int_t ngx_http_limit_sliding_fall_back(ngx_http_limit_sliding_ctx_t *ctx,
    ngx_http_limit_sliding_wait_t *wait);
void ngx_http_limit_sliding_keep_warm(limit_sliding_claim_t *claims,
    ngx_uint_t nclaims, uint64_t now_ms);


#endif /* _NGX_HTTP_LIMIT_SLIDING_CTX_H_INCLUDED_ */
