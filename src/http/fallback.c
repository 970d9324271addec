
/*
 * Copyright (C) the limit_sliding authors
 */


/* When Redis does not decide. */


#include "http/http.h"


static ngx_uint_t ngx_http_limit_sliding_fall_back_to(
    ngx_http_limit_sliding_wait_t *wait, limit_sliding_claim_t *claims,
    ngx_uint_t on_error);


/* What Redis admitted counts in our memory, too, for when it fails. */

void
ngx_http_limit_sliding_keep_warm(limit_sliding_claim_t *claims,
    ngx_uint_t nclaims, uint64_t now_ms)
{
    ngx_uint_t                        i;
    limit_sliding_claim_t             claim;
    ngx_http_limit_sliding_remote_t  *remote;

    for (i = 0; i < nclaims; i++) {
        remote = claims[i].remote;

        if (claims[i].look || remote->own == LIMIT_SLIDING_OWN_OFF) {
            continue;
        }

        claim = claims[i];
        claim.verdict = NULL;

        (void) limit_sliding_acquire(&claim, 1, now_ms);
    }
}


/* The policy of on_error, as if it were an answer. */

ngx_int_t
ngx_http_limit_sliding_fall_back(ngx_http_limit_sliding_ctx_t *ctx,
    ngx_http_limit_sliding_wait_t *wait)
{
    size_t                  i;
    ngx_uint_t              n;
    limit_sliding_claim_t  *claims, *remotes;

    claims = &ctx->claims[ctx->nclaims];
    remotes = wait->waiter.claims;
    n = wait->nlocal + wait->nremote;

    if (ngx_http_limit_sliding_fall_back_to(wait, remotes,
                                            wait->redis->on_error))
    {
        ctx->now_ms = ngx_current_msec;

        i = limit_sliding_acquire(remotes, wait->nremote, ctx->now_ms);

    } else {
        i = limit_sliding_describing(remotes, wait->nremote, ctx->now_ms);
    }

    if (remotes[i].outcome != LIMIT_SLIDING_ADMITTED) {
        limit_sliding_release(claims, wait->nlocal, ngx_current_msec);
    }

    i = limit_sliding_describing(claims, n, ctx->now_ms);

    return ngx_http_limit_sliding_decided(ctx, n, &claims[i]);
}


/*
 * Returns how many claims are left for our own memory to decide.  A key's own
 * limit holds as Redis told it last.
 */

static ngx_uint_t
ngx_http_limit_sliding_fall_back_to(ngx_http_limit_sliding_wait_t *wait,
    limit_sliding_claim_t *claims, ngx_uint_t on_error)
{
    uint32_t                          own;
    ngx_uint_t                        i, left, local;
    limit_sliding_verdict_t          *verdict;
    ngx_http_limit_sliding_remote_t  *remote;

    local = (on_error == NGX_HTTP_LIMIT_SLIDING_ON_ERROR_LOCAL);
    left = 0;

    for (i = 0; i < wait->nremote; i++) {
        remote = claims[i].remote;
        remote->source = NGX_HTTP_LIMIT_SLIDING_FALLBACK;

        own = limit_sliding_limit_cache_find(remote->zone->told,
                                             claims[i].hash);
        remote->own = own;

        if (own != LIMIT_SLIDING_OWN_NONE && own != LIMIT_SLIDING_OWN_OFF) {
            claims[i].limit = own;
        }

        if (local && own != LIMIT_SLIDING_OWN_OFF) {
            claims[i].verdict = NULL;
            left++;
            continue;
        }

        verdict = &remote->verdict;

        ngx_memzero(verdict, sizeof(limit_sliding_verdict_t));

        verdict->limit = claims[i].limit;
        claims[i].verdict = verdict;

        if (local || on_error == NGX_HTTP_LIMIT_SLIDING_ON_ERROR_ALLOW) {
            verdict->remaining = claims[i].limit;
            claims[i].outcome = LIMIT_SLIDING_ADMITTED;

        } else {
            verdict->retry_after_ms = LIMIT_SLIDING_BREAKER_INTERVAL_MS;
            verdict->reset_ms = verdict->retry_after_ms;
            claims[i].outcome = LIMIT_SLIDING_REJECTED;
        }
    }

    return left;
}
