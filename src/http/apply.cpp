
/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/apply.hpp"

#include "http/configuration.hpp"
#include "http/context.hpp"
#include "http/headers.hpp"
#include "http/log.hpp"
#include "http/policy_field.hpp"

namespace limit_sliding {

static ngx_int_t add_retry_after(ngx_http_request_t *r, ngx_uint_t headers,
                                 Context *ctx);

/*
 * Answers the request, which must not be touched after that.  ctx->described
 * is the claim that rejected it.
 */

ngx_int_t reject(ngx_http_request_t *r, LocConf *lscf, Context *ctx)
{
    ctx->status = Status::kRejected;

    log_rejected(r, lscf, ctx);

    if (add_retry_after(r, lscf->headers, ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /*
     * The status is not returned: with "satisfy any" NGINX takes some for the
     * answer of an authentication, which another module may overrule, and its
     * versions differ in which.  A phase finalizes any other status by the
     * same call.
     */

    ngx_http_finalize_request(r, lscf->status_code);

    return NGX_DONE;
}

/* As above, of a limit in dry run. */

void would_reject(ngx_http_request_t *r, LocConf *lscf, Context *ctx)
{
    ctx->status = Status::kRejectedDryRun;

    log_rejected(r, lscf, ctx);
}

static ngx_int_t add_retry_after(ngx_http_request_t *r, ngx_uint_t headers,
                                 Context *ctx)
{
    u_char *p;
    uint64_t ms;
    ngx_str_t value;
    Verdict verdict;

    if (!(headers & kHeaderRetryAfter)) {
        return NGX_OK;
    }

    limit_sliding::claim_describe(ctx->described, ctx->now_ms, &verdict);

    ms = verdict.retry_after_ms;

    if (ms == kNever) {
        return NGX_OK;
    }

    /* what looks without consuming may be admitted before anything remains */

    if (headers & kHeaderDraft) {
        ms = ngx_max(ms, verdict.reset_ms);
    }

    p = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    (void)append_number(p, limit_sliding::seconds(ms), &value);

    return push_header(r, "Retry-After", sizeof("Retry-After") - 1, &value);
}

/* Ours is the first; the upstream of an error_page may have sent another. */

void one_retry_after(ngx_http_request_t *r)
{
    ngx_uint_t i, found;
    ngx_list_part_t *part;
    ngx_table_elt_t *h;

    found = 0;

    for (part = &r->headers_out.headers.part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (h[i].hash == 0 || h[i].key.len != sizeof("Retry-After") - 1
                || ngx_strncasecmp(h[i].key.data, (u_char *)"Retry-After",
                                   sizeof("Retry-After") - 1)
                       != 0) {
                continue;
            }

            if (found) {
                h[i].hash = 0;
            }

            found = 1;
        }
    }
}

} // namespace limit_sliding
