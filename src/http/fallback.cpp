
/*
 * Copyright (C) the limit_sliding authors
 */

/* When Redis does not decide. */

#include "http/fallback.hpp"

#include "http/context.hpp"
#include "http/handler.hpp"

namespace limit_sliding {

static ngx_uint_t fall_back_to(RemoteWait *wait, Claim *claims,
                               OnError on_error);

/* What Redis admitted counts in our memory, too, for when it fails. */

void keep_warm(Claim *claims, ngx_uint_t nclaims, uint64_t now_ms)
{
    ngx_uint_t i;
    Claim claim;
    RemoteClaim *remote;

    for (i = 0; i < nclaims; i++) {
        remote = claims[i].remote;

        if (claims[i].look || remote->own == kOwnOff) {
            continue;
        }

        claim = claims[i];
        claim.verdict = NULL;

        (void)limit_sliding::acquire(&claim, 1, now_ms);
    }
}

/* The policy of on_error, as if it were an answer. */

ngx_int_t fall_back(Context *ctx, RemoteWait *wait)
{
    size_t i;
    ngx_uint_t n;
    Claim *claims, *remotes;

    claims = &ctx->claims[ctx->nclaims];
    remotes = wait->waiter.claims;
    n = wait->nlocal + wait->nremote;

    if (fall_back_to(wait, remotes, wait->redis->settings.on_error)) {
        ctx->now_ms = ngx_current_msec;

        i = limit_sliding::acquire(remotes, wait->nremote, ctx->now_ms);

    } else {
        i = limit_sliding::describing(remotes, wait->nremote, ctx->now_ms);
    }

    if (remotes[i].outcome != Outcome::kAdmitted) {
        limit_sliding::release(claims, wait->nlocal, ngx_current_msec);
    }

    i = limit_sliding::describing(claims, n, ctx->now_ms);

    return decided(ctx, n, &claims[i]);
}

/*
 * Returns how many claims are left for our own memory to decide.  A key's own
 * limit holds as Redis told it last.
 */

static ngx_uint_t fall_back_to(RemoteWait *wait, Claim *claims,
                               OnError on_error)
{
    uint32_t own;
    ngx_uint_t i, left, local;
    Verdict *verdict;
    RemoteClaim *remote;

    local = (on_error == OnError::kLocal);
    left = 0;

    for (i = 0; i < wait->nremote; i++) {
        remote = claims[i].remote;
        remote->source = Source::kFallback;

        own = limit_sliding::limit_cache_find(remote->zone->told,
                                              claims[i].hash);
        remote->own = own;

        if (own != kOwnNone && own != kOwnOff) {
            claims[i].limit = own;
        }

        if (local && own != kOwnOff) {
            claims[i].verdict = NULL;
            left++;
            continue;
        }

        verdict = &remote->verdict;

        ngx_memzero(verdict, sizeof(Verdict));

        verdict->limit = claims[i].limit;
        claims[i].verdict = verdict;

        if (local || on_error == OnError::kAllow) {
            verdict->remaining = claims[i].limit;
            claims[i].outcome = Outcome::kAdmitted;

        } else {
            verdict->retry_after_ms = kBreakerIntervalMs;
            verdict->reset_ms = verdict->retry_after_ms;
            claims[i].outcome = Outcome::kRejected;
        }
    }

    return left;
}

} // namespace limit_sliding
