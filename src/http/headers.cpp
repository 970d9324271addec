
/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * limit_sliding_headers draft x: fields that tell a client its limits as they
 * were when the request was decided.
 */

#include "http/headers.hpp"

#include "http/apply.hpp"
#include "http/configuration.hpp"
#include "http/context.hpp"
#include "http/limit_set.hpp"
#include "http/policy_field.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static ngx_int_t header_filter(ngx_http_request_t *r);
static ngx_int_t add_fields(ngx_http_request_t *r, Context *ctx);
static Claim *shown_claims(Context *ctx, ngx_uint_t *n, size_t *size);
static ngx_int_t print_policies(ngx_http_request_t *r, Context *ctx,
                                size_t size, ngx_str_t *text);
static ngx_int_t limit_digits(ngx_http_request_t *r, Claim *claim,
                              ngx_str_t *text);

#define add(r, name, value) push_header(r, name, sizeof(name) - 1, value)

static ngx_http_output_header_filter_pt ngx_http_next_header_filter;

/* Called if some place wants fields or may replace a rejection by a page. */

void init_headers(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = header_filter;
}

static ngx_int_t header_filter(ngx_http_request_t *r)
{
    Context *ctx;

    if (r != r->main) {
        return ngx_http_next_header_filter(r);
    }

    ctx = get_ctx(r);

    if (ctx == NULL || ctx->nclaims == 0) {
        return ngx_http_next_header_filter(r);
    }

    if (ctx->status == Status::kRejected && (ctx->headers & kHeaderRetryAfter)
        && r->upstream) {
        one_retry_after(r);
    }

    if ((ctx->headers & ~kHeaderRetryAfter) && add_fields(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_next_header_filter(r);
}

/*
 * RateLimit-Policy: "one";q=600;w=60
 * RateLimit: "one";r=599;t=1
 *
 * The other fields are numbers, of which two stand in the second already.
 */

static ngx_int_t add_fields(ngx_http_request_t *r, Context *ctx)
{
    size_t size;
    u_char *p;
    ngx_str_t state, policy, digits, remaining, reset;
    ngx_str_t shown_remaining, shown_reset;
    ngx_uint_t i, n;
    Claim *claim, *shown;
    Verdict verdict;
    Limit *limit;

    shown = shown_claims(ctx, &n, &size);

    if (shown == NULL) {
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    state.data = p;

    for (i = 0; i < ctx->nclaims; i++) {
        claim = &ctx->claims[i];
        limit = claim->data;

        if (limit->dry_run) {
            continue;
        }

        limit_sliding::claim_describe(claim, ctx->now_ms, &verdict);

        if (p != state.data) {
            *p++ = ',';
            *p++ = ' ';
        }

        p = ngx_cpymem(p, limit->zone->quoted.data, limit->zone->quoted.len);
        p = ngx_cpymem(p, ";r=", 3);
        p = append_number(p, verdict.remaining, &remaining);
        p = ngx_cpymem(p, ";t=", 3);
        p = append_number(p, limit_sliding::seconds(verdict.reset_ms), &reset);

        if (claim == shown) {
            shown_remaining = remaining;
            shown_reset = reset;
        }
    }

    state.len = p - state.data;

    if (ctx->headers & kHeaderDraft) {
        limit = shown->data;
        policy = limit->policy;

        if ((n > 1 || shown->limit != limit->limit)
            && print_policies(r, ctx, size, &policy) != NGX_OK) {
            return NGX_ERROR;
        }

        if (add(r, "RateLimit-Policy", &policy) != NGX_OK
            || add(r, "RateLimit", &state) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (!(ctx->headers & kHeaderX)) {
        return NGX_OK;
    }

    if (limit_digits(r, shown, &digits) != NGX_OK
        || add(r, "X-RateLimit-Limit", &digits) != NGX_OK
        || add(r, "X-RateLimit-Remaining", &shown_remaining) != NGX_OK) {
        return NGX_ERROR;
    }

    return add(r, "X-RateLimit-Reset", &shown_reset);
}

/*
 * The claim of the X- fields: that which rejected the request, or the tightest.
 * Limits in dry run are not a client's business.  NULL: there are no others,
 * else *n of them, whose list members take at most *size bytes.
 */

static Claim *shown_claims(Context *ctx, ngx_uint_t *n, size_t *size)
{
    ngx_uint_t i;
    Claim *claim, *shown, two[2];
    Limit *limit;

    shown = NULL;
    *n = 0;
    *size = 0;

    for (i = 0; i < ctx->nclaims; i++) {
        claim = &ctx->claims[i];
        limit = claim->data;

        if (limit->dry_run) {
            continue;
        }

        *n += 1;
        *size += limit->zone->quoted.len + kMember;

        if (shown == NULL) {
            shown = claim;
            continue;
        }

        if (ctx->status == Status::kRejected) {
            continue;
        }

        two[0] = *shown;
        two[1] = *claim;

        if (limit_sliding::tightest(two, 2, ctx->now_ms) == 1) {
            shown = claim;
        }
    }

    return ctx->status == Status::kRejected ? ctx->described : shown;
}

static ngx_int_t print_policies(ngx_http_request_t *r, Context *ctx,
                                size_t size, ngx_str_t *text)
{
    u_char *p;
    ngx_uint_t i;
    Claim *claim;
    Limit *limit;

    p = ngx_pnalloc(r->pool, size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    text->data = p;

    for (i = 0; i < ctx->nclaims; i++) {
        claim = &ctx->claims[i];
        limit = claim->data;

        if (limit->dry_run) {
            continue;
        }

        if (p != text->data) {
            *p++ = ',';
            *p++ = ' ';
        }

        p = print_policy(p, limit->zone, claim->limit);
    }

    text->len = p - text->data;

    return NGX_OK;
}

static ngx_int_t limit_digits(ngx_http_request_t *r, Claim *claim,
                              ngx_str_t *text)
{
    u_char *p;
    Limit *limit;

    limit = claim->data;

    if (claim->limit == limit->limit) {
        *text = limit->digits;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_INT32_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    (void)append_number(p, claim->limit, text);

    return NGX_OK;
}

ngx_int_t push_header(ngx_http_request_t *r, char *name, size_t len,
                      ngx_str_t *value)
{
    ngx_list_t *list;
    ngx_table_elt_t *h;

    list = &r->headers_out.headers;

    /* ngx_list_push(), without a call while there is room */

    if (list->last->nelts < list->nalloc) {
        h = list->last->elts;
        h += list->last->nelts++;

    } else {
        h = ngx_list_push(list);
        if (h == NULL) {
            return NGX_ERROR;
        }
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    h->key.len = len;
    h->key.data = (u_char *)name;
    h->value = *value;

    return NGX_OK;
}

} // namespace limit_sliding
