
/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * Requests that are rejected without asking Redis of all their limits, and what
 * header fields say of those limits that were not asked.
 */

#include "http/refusal.hpp"

#include "http/configuration.hpp"
#include "http/context.hpp"
#include "http/handler.hpp"
#include "http/limit_set.hpp"

namespace limit_sliding {

static ngx_uint_t is_listed(Context *ctx, Claim *claim);
static ngx_int_t is_refused(ngx_http_request_t *r, Context *ctx, ngx_uint_t n);
static void describe_undecided(Claim *claim, uint64_t now_ms, Verdict *verdict);
static ngx_uint_t is_told(Claim *claim, uint64_t now_ms, Verdict *verdict);

/*
 * Rejects the next claims if any of their keys is known to be exhausted.
 * NGX_OK: none is.
 */

ngx_int_t refuse(ngx_http_request_t *r, Context *ctx, ngx_uint_t nlocal,
                 ngx_uint_t nremote)
{
    ngx_uint_t i, n, nknown;
    Claim *claims, *claim, known;
    Refusal refusal;
    Verdict *verdict;
    RemoteClaim *remote;

    claims = &ctx->claims[ctx->nclaims];
    n = nlocal + nremote;
    nknown = 0;

    for (i = nlocal; i < n; i++) {
        claim = &claims[i];
        remote = claim->remote;

        claim->outcome = Outcome::kUndecided;

        if (!limit_sliding::refusals_find(remote->zone->refusals,
                                          limit_sliding::refusal_hash(claim),
                                          ctx->now_ms, &refusal)
            || refusal.admits) {
            continue;
        }

        verdict = &remote->verdict;

        verdict->limit = refusal.limit;
        verdict->remaining = refusal.remaining;
        verdict->excess
            = ((uint64_t)claim->cost - ngx_min(claim->cost, refusal.remaining))
              * 1000;
        verdict->retry_after_ms = refusal.until_ms - ctx->now_ms;
        verdict->reset_ms = (refusal.reset_ms > ctx->now_ms)
                                ? refusal.reset_ms - ctx->now_ms
                                : verdict->retry_after_ms;
        verdict->delay_ms = 0;

        remote->source = Source::kCache;

        claim->limit = refusal.limit;
        claim->verdict = verdict;
        claim->outcome = Outcome::kRejected;

        nknown++;
    }

    if (nknown == 0) {
        return NGX_OK;
    }

    for (i = 0; i < nlocal; i++) {
        claims[i].outcome = Outcome::kUndecided;
    }

    if (is_listed(ctx, claims)) {
        return is_refused(r, ctx, n);
    }

    /* the others are not looked at any more */

    for (i = 0, nknown = 0; i < n; i++) {
        if (claims[i].outcome == Outcome::kRejected) {
            known = claims[i];
            claims[i] = claims[nknown];
            claims[nknown++] = known;
        }
    }

    return is_refused(r, ctx, nknown);
}

/* As above, of claims that our own memory has rejected some of. */

ngx_int_t refuse_local(ngx_http_request_t *r, Context *ctx, ngx_uint_t nlocal,
                       ngx_uint_t nremote)
{
    ngx_uint_t i;
    Claim *claims;

    claims = &ctx->claims[ctx->nclaims];

    if (!is_listed(ctx, claims)) {
        return is_refused(r, ctx, nlocal);
    }

    for (i = nlocal; i < nlocal + nremote; i++) {
        claims[i].outcome = Outcome::kUndecided;
    }

    return is_refused(r, ctx, nlocal + nremote);
}

/* Do header fields tell more of a rejection than when to try again? */

static ngx_uint_t is_listed(Context *ctx, Claim *claim)
{
    Limit *limit;

    limit = claim->data;

    return (ctx->headers & kHeaderDraft) && !limit->dry_run;
}

/* The next n claims reject the request; some of them may be undecided. */

static ngx_int_t is_refused(ngx_http_request_t *r, Context *ctx, ngx_uint_t n)
{
    ngx_uint_t i;
    Claim *claims, *claim;
    Verdict *verdict;
    RemoteClaim *remote;

    claims = &ctx->claims[ctx->nclaims];

    for (i = 0; i < n; i++) {
        claim = &claims[i];
        remote = claim->remote;

        if (claim->outcome != Outcome::kUndecided) {
            continue;
        }

        if (remote) {
            verdict = &remote->verdict;

        } else {
            verdict = ngx_palloc(r->pool, sizeof(Verdict));
            if (verdict == NULL) {
                return NGX_ERROR;
            }
        }

        describe_undecided(claim, ctx->now_ms, verdict);

        claim->limit = verdict->limit;
        claim->verdict = verdict;
    }

    return decided(ctx, n,
                   &claims[limit_sliding::describing(claims, n, ctx->now_ms)]);
}

/*
 * As Redis told the key when it rejected such a request, up to a second ago;
 * if it has not, as this node has counted the key.
 */

static void describe_undecided(Claim *claim, uint64_t now_ms, Verdict *verdict)
{
    uint32_t own;
    Claim look;
    RemoteClaim *remote;

    if (claim->remote && is_told(claim, now_ms, verdict)) {
        return;
    }

    look = *claim;
    look.look = 1;
    look.verdict = NULL;

    remote = claim->remote;

    if (remote) {
        own = limit_sliding::limit_cache_find(remote->zone->told, claim->hash);

        if (own == kOwnOff) {
            ngx_memzero(verdict, sizeof(Verdict));
            verdict->limit = claim->limit;
            verdict->remaining = claim->limit;
            return;
        }

        if (own != kOwnNone) {
            look.limit = own;
        }
    }

    (void)limit_sliding::acquire(&look, 1, now_ms);

    limit_sliding::claim_describe(&look, now_ms, verdict);
}

static ngx_uint_t is_told(Claim *claim, uint64_t now_ms, Verdict *verdict)
{
    Refusal refusal;
    RemoteClaim *remote;

    remote = claim->remote;

    if (!limit_sliding::refusals_find(remote->zone->refusals,
                                      limit_sliding::refusal_hash(claim),
                                      now_ms, &refusal)) {
        return 0;
    }

    ngx_memzero(verdict, sizeof(Verdict));

    verdict->limit = refusal.limit;
    verdict->remaining = refusal.remaining;

    if (refusal.reset_ms > now_ms) {
        verdict->reset_ms = refusal.reset_ms - now_ms;
    }

    return 1;
}

} // namespace limit_sliding
