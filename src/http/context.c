
/*
 * Copyright (C) the limit_sliding authors
 */


#include "http/http.h"


/* The request was redirected, and with that its contexts cleared. */

ngx_http_limit_sliding_ctx_t *
ngx_http_limit_sliding_find_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t  *cln;

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_limit_sliding_cleanup) {
            ngx_http_set_ctx(r, cln->data, ngx_http_limit_sliding_module);
            return cln->data;
        }
    }

    return NULL;
}


/* A context with room for more, which begins with what the old one decided. */

ngx_http_limit_sliding_ctx_t *
ngx_http_limit_sliding_extend_ctx(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *octx, ngx_uint_t nclaims)
{
    ngx_http_limit_sliding_ctx_t  *ctx;

    ctx = ngx_http_limit_sliding_create_ctx(r, octx->nclaims + nclaims);
    if (ctx == NULL) {
        return NULL;
    }

    ctx->wait = octx->wait;

    if (octx->nclaims == 0) {
        return ctx;
    }

    ctx->status = octx->status;
    ctx->nclaims = octx->nclaims;
    ctx->headers = octx->headers;
    ctx->now_ms = octx->now_ms;
    ctx->described = ctx->claims + (octx->described - octx->claims);

    ngx_memcpy(ctx->claims, octx->claims,
               octx->nclaims * sizeof(limit_sliding_claim_t));

    return ctx;
}


ngx_uint_t
ngx_http_limit_sliding_is_decided(ngx_http_limit_sliding_ctx_t *ctx,
    ngx_http_limit_sliding_zone_t *zone)
{
    ngx_uint_t                       i;
    ngx_http_limit_sliding_limit_t  *limit;

    for (i = 0; i < ctx->nclaims; i++) {
        limit = ctx->claims[i].data;

        if (limit->zone == zone) {
            return 1;
        }
    }

    return 0;
}


/* Marks the record; there is nothing to clean up. */

void
ngx_http_limit_sliding_cleanup(void *data)
{
    return;
}
