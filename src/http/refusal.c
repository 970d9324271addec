
/*
 * Copyright (C) the limit_sliding authors
 */


/*
 * Requests that are rejected without asking Redis of all their limits, and what
 * header fields say of those limits that were not asked.
 */


#include "http/http.h"


static ngx_uint_t ngx_http_limit_sliding_is_listed(
    ngx_http_limit_sliding_ctx_t *ctx, limit_sliding_claim_t *claim);
static ngx_int_t ngx_http_limit_sliding_refused(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t n);
static void ngx_http_limit_sliding_describe_undecided(
    limit_sliding_claim_t *claim, uint64_t now_ms,
    limit_sliding_verdict_t *verdict);
static ngx_uint_t ngx_http_limit_sliding_is_told(limit_sliding_claim_t *claim,
    uint64_t now_ms, limit_sliding_verdict_t *verdict);


/*
 * Rejects the next claims if any of their keys is known to be exhausted.
 * NGX_OK: none is.
 */

ngx_int_t
ngx_http_limit_sliding_refuse(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t nlocal, ngx_uint_t nremote)
{
    ngx_uint_t                        i, n, nknown;
    limit_sliding_claim_t            *claims, *claim, known;
    limit_sliding_refusal_t           refusal;
    limit_sliding_verdict_t          *verdict;
    ngx_http_limit_sliding_remote_t  *remote;

    claims = &ctx->claims[ctx->nclaims];
    n = nlocal + nremote;
    nknown = 0;

    for (i = nlocal; i < n; i++) {
        claim = &claims[i];
        remote = claim->remote;

        claim->outcome = LIMIT_SLIDING_UNDECIDED;

        if (!limit_sliding_refusals_find(remote->zone->refusals,
                                         limit_sliding_refusal_hash(claim),
                                         ctx->now_ms, &refusal)
            || refusal.admits)
        {
            continue;
        }

        verdict = &remote->verdict;

        verdict->limit = refusal.limit;
        verdict->remaining = refusal.remaining;
        verdict->excess = ((uint64_t) claim->cost
                           - ngx_min(claim->cost, refusal.remaining)) * 1000;
        verdict->retry_after_ms = refusal.until_ms - ctx->now_ms;
        verdict->reset_ms = (refusal.reset_ms > ctx->now_ms)
                            ? refusal.reset_ms - ctx->now_ms
                            : verdict->retry_after_ms;
        verdict->delay_ms = 0;

        remote->source = NGX_HTTP_LIMIT_SLIDING_CACHE;

        claim->limit = refusal.limit;
        claim->verdict = verdict;
        claim->outcome = LIMIT_SLIDING_REJECTED;

        nknown++;
    }

    if (nknown == 0) {
        return NGX_OK;
    }

    for (i = 0; i < nlocal; i++) {
        claims[i].outcome = LIMIT_SLIDING_UNDECIDED;
    }

    if (ngx_http_limit_sliding_is_listed(ctx, claims)) {
        return ngx_http_limit_sliding_refused(r, ctx, n);
    }

    /* the others are not looked at any more */

    for (i = 0, nknown = 0; i < n; i++) {
        if (claims[i].outcome == LIMIT_SLIDING_REJECTED) {
            known = claims[i];
            claims[i] = claims[nknown];
            claims[nknown++] = known;
        }
    }

    return ngx_http_limit_sliding_refused(r, ctx, nknown);
}


/* As above, of claims that our own memory has rejected some of. */

ngx_int_t
ngx_http_limit_sliding_refuse_local(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t nlocal, ngx_uint_t nremote)
{
    ngx_uint_t              i;
    limit_sliding_claim_t  *claims;

    claims = &ctx->claims[ctx->nclaims];

    if (!ngx_http_limit_sliding_is_listed(ctx, claims)) {
        return ngx_http_limit_sliding_refused(r, ctx, nlocal);
    }

    for (i = nlocal; i < nlocal + nremote; i++) {
        claims[i].outcome = LIMIT_SLIDING_UNDECIDED;
    }

    return ngx_http_limit_sliding_refused(r, ctx, nlocal + nremote);
}


/* Do header fields tell more of a rejection than when to try again? */

static ngx_uint_t
ngx_http_limit_sliding_is_listed(ngx_http_limit_sliding_ctx_t *ctx,
    limit_sliding_claim_t *claim)
{
    ngx_http_limit_sliding_limit_t  *limit;

    limit = claim->data;

    return (ctx->headers & NGX_HTTP_LIMIT_SLIDING_DRAFT) && !limit->dry_run;
}


/* The next n claims reject the request; some of them may be undecided. */

static ngx_int_t
ngx_http_limit_sliding_refused(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t n)
{
    ngx_uint_t                        i;
    limit_sliding_claim_t            *claims, *claim;
    limit_sliding_verdict_t          *verdict;
    ngx_http_limit_sliding_remote_t  *remote;

    claims = &ctx->claims[ctx->nclaims];

    for (i = 0; i < n; i++) {
        claim = &claims[i];
        remote = claim->remote;

        if (claim->outcome != LIMIT_SLIDING_UNDECIDED) {
            continue;
        }

        if (remote) {
            verdict = &remote->verdict;

        } else {
            verdict = ngx_palloc(r->pool, sizeof(limit_sliding_verdict_t));
            if (verdict == NULL) {
                return NGX_ERROR;
            }
        }

        ngx_http_limit_sliding_describe_undecided(claim, ctx->now_ms, verdict);

        claim->limit = verdict->limit;
        claim->verdict = verdict;
    }

    return ngx_http_limit_sliding_decided(ctx, n,
                &claims[limit_sliding_describing(claims, n, ctx->now_ms)]);
}


/*
 * As Redis told the key when it rejected such a request, up to a second ago;
 * if it has not, as this node has counted the key.
 */

static void
ngx_http_limit_sliding_describe_undecided(limit_sliding_claim_t *claim,
    uint64_t now_ms, limit_sliding_verdict_t *verdict)
{
    uint32_t                          own;
    limit_sliding_claim_t             look;
    ngx_http_limit_sliding_remote_t  *remote;

    if (claim->remote && ngx_http_limit_sliding_is_told(claim, now_ms, verdict))
    {
        return;
    }

    look = *claim;
    look.look = 1;
    look.verdict = NULL;

    remote = claim->remote;

    if (remote) {
        own = limit_sliding_limit_cache_find(remote->zone->told, claim->hash);

        if (own == LIMIT_SLIDING_OWN_OFF) {
            ngx_memzero(verdict, sizeof(limit_sliding_verdict_t));
            verdict->limit = claim->limit;
            verdict->remaining = claim->limit;
            return;
        }

        if (own != LIMIT_SLIDING_OWN_NONE) {
            look.limit = own;
        }
    }

    (void) limit_sliding_acquire(&look, 1, now_ms);

    limit_sliding_claim_describe(&look, now_ms, verdict);
}


static ngx_uint_t
ngx_http_limit_sliding_is_told(limit_sliding_claim_t *claim, uint64_t now_ms,
    limit_sliding_verdict_t *verdict)
{
    limit_sliding_refusal_t           refusal;
    ngx_http_limit_sliding_remote_t  *remote;

    remote = claim->remote;

    if (!limit_sliding_refusals_find(remote->zone->refusals,
                                     limit_sliding_refusal_hash(claim),
                                     now_ms, &refusal))
    {
        return 0;
    }

    ngx_memzero(verdict, sizeof(limit_sliding_verdict_t));

    verdict->limit = refusal.limit;
    verdict->remaining = refusal.remaining;

    if (refusal.reset_ms > now_ms) {
        verdict->reset_ms = refusal.reset_ms - now_ms;
    }

    return 1;
}
