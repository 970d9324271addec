
/*
 * Copyright (C) the limit_sliding authors
 */


#include "ngx_http_limit_sliding.h"


static ngx_int_t ngx_http_limit_sliding_add_retry_after(ngx_http_request_t *r,
    ngx_uint_t headers, limit_sliding_verdict_t *verdict);


/* ctx->described is the claim that rejected the request. */

ngx_int_t
ngx_http_limit_sliding_reject(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_ctx_t *ctx)
{
    limit_sliding_verdict_t  verdict;

    ctx->status = NGX_HTTP_LIMIT_SLIDING_REJECTED;

    limit_sliding_claim_describe(ctx->described, ctx->now_ms, &verdict);

    ngx_http_limit_sliding_log_rejected(r, lscf, ctx->described, &verdict);

    if (ngx_http_limit_sliding_add_retry_after(r, lscf->headers, &verdict)
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


/* As above, of a limit in dry run. */

void
ngx_http_limit_sliding_would_reject(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_ctx_t *ctx)
{
    limit_sliding_verdict_t  verdict;

    ctx->status = NGX_HTTP_LIMIT_SLIDING_REJECTED_DRY_RUN;

    limit_sliding_claim_describe(ctx->described, ctx->now_ms, &verdict);

    ngx_http_limit_sliding_log_rejected(r, lscf, ctx->described, &verdict);
}


static ngx_int_t
ngx_http_limit_sliding_add_retry_after(ngx_http_request_t *r,
    ngx_uint_t headers, limit_sliding_verdict_t *verdict)
{
    uint64_t          ms;
    ngx_table_elt_t  *h;

    ms = verdict->retry_after_ms;

    if (!(headers & NGX_HTTP_LIMIT_SLIDING_RETRY_AFTER)
        || ms == LIMIT_SLIDING_NEVER)
    {
        return NGX_OK;
    }

    /* what looks without consuming may be admitted before anything remains */

    if (headers & NGX_HTTP_LIMIT_SLIDING_DRAFT) {
        ms = ngx_max(ms, verdict->reset_ms);
    }

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


/* Ours is the first; the upstream of an error_page may have sent another. */

void
ngx_http_limit_sliding_one_retry_after(ngx_http_request_t *r)
{
    ngx_uint_t        i, found;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    found = 0;

    for (part = &r->headers_out.headers.part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (h[i].hash == 0
                || h[i].key.len != sizeof("Retry-After") - 1
                || ngx_strncasecmp(h[i].key.data, (u_char *) "Retry-After",
                                   sizeof("Retry-After") - 1)
                   != 0)
            {
                continue;
            }

            if (found) {
                h[i].hash = 0;
            }

            found = 1;
        }
    }
}
