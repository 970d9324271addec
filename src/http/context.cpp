
/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/context.hpp"

#include "http/limit_set.hpp"
#include "http/module.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

/* The request was redirected, and with that its contexts cleared. */

Context *find_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t *cln;

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == context_cleanup) {
            ngx_http_set_ctx(r, cln->data, ngx_http_limit_sliding_module);
            return cln->data;
        }
    }

    return NULL;
}

/* A context with room for more, which begins with what the old one decided. */

Context *extend_ctx(ngx_http_request_t *r, Context *octx, ngx_uint_t nclaims)
{
    Context *ctx;

    ctx = create_ctx(r, octx->nclaims + nclaims);
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

    ngx_memcpy(ctx->claims, octx->claims, octx->nclaims * sizeof(Claim));

    return ctx;
}

ngx_uint_t is_decided(Context *ctx, ZoneConf *zone)
{
    ngx_uint_t i;
    Limit *limit;

    for (i = 0; i < ctx->nclaims; i++) {
        limit = ctx->claims[i].data;

        if (limit->zone == zone) {
            return 1;
        }
    }

    return 0;
}

/* Marks the record; there is nothing to clean up. */

void context_cleanup(void *data)
{
    return;
}

} // namespace limit_sliding
