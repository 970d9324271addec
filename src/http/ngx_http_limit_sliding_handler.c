
/*
 * Copyright (C) the limit_sliding authors
 */


/*
 * Life of a request:
 *
 *   limit_sliding directive   src/http   configuration -> a location's limits
 *   access handler            src/http   key, limit, clock -> core
 *     shared memory           src/core   find the key's state, compute,
 *                                        compare-and-swap
 *   verdict                   src/core   allowed? remaining, reset, retry after
 *   apply                     src/http   DECLINED | status, header, log
 */


#include "ngx_http_limit_sliding.h"


static ngx_inline ngx_http_limit_sliding_ctx_t *
    ngx_http_limit_sliding_create_ctx(ngx_http_request_t *r,
    ngx_uint_t nclaims);
static ngx_http_limit_sliding_ctx_t *ngx_http_limit_sliding_extend_ctx(
    ngx_http_request_t *r, ngx_http_limit_sliding_ctx_t *octx,
    ngx_uint_t nclaims);
static void ngx_http_limit_sliding_cleanup(void *data);
static ngx_uint_t ngx_http_limit_sliding_is_decided(
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t ndecided,
    ngx_http_limit_sliding_zone_t *zone);
static ngx_int_t ngx_http_limit_sliding_key(ngx_http_request_t *r,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t *key);
static ngx_int_t ngx_http_limit_sliding_collect(ngx_http_request_t *r,
    ngx_array_t *limits, ngx_http_limit_sliding_ctx_t *ctx);
static ngx_uint_t ngx_http_limit_sliding_decide(
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t ndecided);
static ngx_int_t ngx_http_limit_sliding_reject(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_ctx_t *ctx);
static ngx_int_t ngx_http_limit_sliding_add_retry_after(ngx_http_request_t *r,
    uint64_t ms);


ngx_int_t
ngx_http_limit_sliding_handler(ngx_http_request_t *r)
{
    ngx_uint_t                      ndecided;
    ngx_http_limit_sliding_ctx_t   *ctx, *octx;
    ngx_http_limit_sliding_conf_t  *lscf;

    lscf = ngx_http_get_module_loc_conf(r, ngx_http_limit_sliding_module);

    if (lscf->limits == NULL) {
        return NGX_DECLINED;
    }

    octx = ngx_http_limit_sliding_get_ctx(r);

    if (octx == NULL) {
        ctx = ngx_http_limit_sliding_create_ctx(r, lscf->limits->nelts);

    } else if (octx->status != NGX_HTTP_LIMIT_SLIDING_REJECTED) {
        ctx = ngx_http_limit_sliding_extend_ctx(r, octx, lscf->limits->nelts);

    } else {
        return NGX_DECLINED;
    }

    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ndecided = ctx->nclaims;

    if (ngx_http_limit_sliding_collect(r, lscf->limits, ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ctx->nclaims == ndecided) {
        return NGX_DECLINED;
    }

    if (ngx_http_limit_sliding_decide(ctx, ndecided)) {
        return NGX_DECLINED;
    }

    return ngx_http_limit_sliding_reject(r, lscf, ctx);
}


/* NULL: nothing was decided for the request yet. */

ngx_http_limit_sliding_ctx_t *
ngx_http_limit_sliding_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t            *cln;
    ngx_http_limit_sliding_ctx_t  *ctx;

    r = r->main;

    ctx = ngx_http_get_module_ctx(r, ngx_http_limit_sliding_module);

    if (ctx == NULL && (r->internal || r->filter_finalize)) {

        /* the request was redirected, and with that its contexts cleared */

        for (cln = r->pool->cleanup; cln; cln = cln->next) {
            if (cln->handler == ngx_http_limit_sliding_cleanup) {
                ctx = cln->data;
                ngx_http_set_ctx(r, ctx, ngx_http_limit_sliding_module);
                break;
            }
        }
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
    ctx->described = NULL;
    ctx->nclaims = 0;

    ngx_http_set_ctx(r, ctx, ngx_http_limit_sliding_module);

    return ctx;
}


/* A context with room for more, which begins with what the old one decided. */

static ngx_http_limit_sliding_ctx_t *
ngx_http_limit_sliding_extend_ctx(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *octx, ngx_uint_t nclaims)
{
    ngx_http_limit_sliding_ctx_t  *ctx;

    ctx = ngx_http_limit_sliding_create_ctx(r, octx->nclaims + nclaims);
    if (ctx == NULL) {
        return NULL;
    }

    ctx->status = octx->status;
    ctx->now_ms = octx->now_ms;
    ctx->nclaims = octx->nclaims;

    ngx_memcpy(ctx->claims, octx->claims,
               octx->nclaims * sizeof(limit_sliding_claim_t));

    if (octx->described) {
        ctx->described = ctx->claims + (octx->described - octx->claims);
    }

    return ctx;
}


/* Marks the record; there is nothing to clean up. */

static void
ngx_http_limit_sliding_cleanup(void *data)
{
    return;
}


static ngx_uint_t
ngx_http_limit_sliding_is_decided(ngx_http_limit_sliding_ctx_t *ctx,
    ngx_uint_t ndecided, ngx_http_limit_sliding_zone_t *zone)
{
    ngx_uint_t  i;

    for (i = 0; i < ndecided; i++) {
        if (ctx->claims[i].data == zone) {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_limit_sliding_key(ngx_http_request_t *r,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t *key)
{
    ngx_http_variable_value_t  *vv;

    if (zone->key_index == NGX_ERROR) {
        return ngx_http_complex_value(r, &zone->key, key);
    }

    vv = ngx_http_get_flushed_variable(r, zone->key_index);

    if (vv == NULL || vv->not_found) {
        ngx_str_null(key);
        return NGX_OK;
    }

    key->len = vv->len;
    key->data = vv->data;

    return NGX_OK;
}


/* Adds a claim for every limit that is to be decided. */

static ngx_int_t
ngx_http_limit_sliding_collect(ngx_http_request_t *r, ngx_array_t *limits,
    ngx_http_limit_sliding_ctx_t *ctx)
{
    ngx_str_t                        key;
    ngx_uint_t                       i, ndecided;
    limit_sliding_claim_t           *claim;
    ngx_http_limit_sliding_zone_t   *zone;
    ngx_http_limit_sliding_limit_t  *limit;

    limit = limits->elts;
    ndecided = ctx->nclaims;
    claim = &ctx->claims[ndecided];

    for (i = 0; i < limits->nelts; i++) {
        zone = limit[i].zone;

        if (ngx_http_limit_sliding_is_decided(ctx, ndecided, zone)) {
            continue;
        }

        if (ngx_http_limit_sliding_key(r, zone, &key) != NGX_OK) {
            return NGX_ERROR;
        }

        if (key.len == 0) {
            continue;
        }

        if (key.len > 65535) {
            ngx_http_limit_sliding_log_long_key(r, zone, &key);
            continue;
        }

        claim->zone = zone->zone;
        claim->policy = &zone->policy;
        claim->hash = limit_sliding_zone_hash(zone->zone, key.data, key.len);
        claim->limit = zone->limit;
        claim->cost = 1;
        claim->look = 0;
        claim->data = zone;

        claim++;
        ctx->nclaims++;
    }

    return NGX_OK;
}


/*
 * Decides the claims after the first ndecided, which a location before a
 * redirect has decided; returns 1 if they admit the request.  The tightest of
 * all describes it, unless one rejected it.
 */

static ngx_uint_t
ngx_http_limit_sliding_decide(ngx_http_limit_sliding_ctx_t *ctx,
    ngx_uint_t ndecided)
{
    limit_sliding_claim_t  *claims, *claim;

    claims = &ctx->claims[ndecided];

    ctx->now_ms = ngx_current_msec;

    claim = &claims[limit_sliding_acquire(claims, ctx->nclaims - ndecided,
                                          ctx->now_ms)];

    if (claim->outcome != LIMIT_SLIDING_ADMITTED) {
        ctx->described = claim;
        return 0;
    }

    if (ctx->status == NGX_HTTP_LIMIT_SLIDING_PASSED) {
        ctx->described = claim;

        if (ndecided) {
            ctx->described = &ctx->claims[
                                 limit_sliding_tightest(ctx->claims,
                                                        ctx->nclaims,
                                                        ctx->now_ms)];
        }
    }

    return 1;
}


static ngx_int_t
ngx_http_limit_sliding_reject(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_ctx_t *ctx)
{
    limit_sliding_verdict_t  verdict;

    limit_sliding_claim_describe(ctx->described, ctx->now_ms, &verdict);

    ngx_http_limit_sliding_log_rejected(r, lscf, ctx, &verdict);

    if (lscf->dry_run) {
        ctx->status = NGX_HTTP_LIMIT_SLIDING_REJECTED_DRY_RUN;
        return NGX_DECLINED;
    }

    ctx->status = NGX_HTTP_LIMIT_SLIDING_REJECTED;

    if (verdict.retry_after_ms != LIMIT_SLIDING_NEVER
        && ngx_http_limit_sliding_add_retry_after(r, verdict.retry_after_ms)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (lscf->status_code == NGX_HTTP_UNAUTHORIZED
        || lscf->status_code == NGX_HTTP_FORBIDDEN)
    {
        /* returned, they would be taken for the answer of an authentication */

        ngx_http_finalize_request(r, lscf->status_code);
        return NGX_DONE;
    }

    return lscf->status_code;
}


static ngx_int_t
ngx_http_limit_sliding_add_retry_after(ngx_http_request_t *r, uint64_t ms)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    ngx_str_set(&h->key, "Retry-After");

    h->value.data = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (h->value.data == NULL) {
        h->hash = 0;
        return NGX_ERROR;
    }

    h->value.len = ngx_sprintf(h->value.data, "%uL", limit_sliding_seconds(ms))
                   - h->value.data;

    return NGX_OK;
}
