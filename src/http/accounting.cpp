
/*
 * Copyright (C) the limit_sliding authors
 */

/* What is counted of requests that were decided. */

#include "http/accounting.hpp"

#include "http/configuration.hpp"
#include "http/context.hpp"
#include "http/limit_set.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static void add_rejections(ngx_http_request_t *r, Claim *claim, uint32_t n);

/*
 * Counts the claims from `first` on, which were decided together, each in its
 * zone; `rejected` if any of them rejected the request.
 */

void account(ngx_http_request_t *r, Context *ctx, ngx_uint_t first,
             ngx_uint_t rejected)
{
    ngx_uint_t i;
    Claim *claim;
    Count count;
    Limit *limit;
    RemoteClaim *remote;

    for (i = first; i < ctx->nclaims; i++) {
        claim = &ctx->claims[i];
        limit = claim->data;
        remote = claim->remote;

        if (claim->outcome == Outcome::kUndecided) {
            continue;
        }

        if (claim->outcome != Outcome::kAdmitted) {
            count = limit->dry_run ? kCountRejectedDryRun : kCountRejected;

            add_offender(r, claim);

        } else if (!rejected
                   && limit_sliding::claim_delay_ms(claim, ctx->now_ms)) {
            count = limit->dry_run ? kCountDelayedDryRun : kCountDelayed;

        } else {
            count = kCountPassed;
        }

        tally(limit->zone, count);

        if (remote) {
            (void)ngx_atomic_fetch_add(
                (ngx_atomic_t *)&limit->zone->worker.counters
                    ->sources[index_of(remote->source)],
                1);
        }
    }
}

/* For a claim that was rejected.  Most end here when there are many. */

void add_offender(ngx_http_request_t *r, Claim *claim)
{
    uint32_t n;
    ZoneConf *zone;
    Limit *limit;

    limit = claim->data;
    zone = limit->zone;

    if (!zone->top) {
        return;
    }

    n = limit_sliding::top_weight(&zone->worker.sampler, ngx_current_msec);

    if (n) {
        add_rejections(r, claim, n);
    }
}

/* Of who is over its limit, not where the zone is full, or Redis away. */

static void add_rejections(ngx_http_request_t *r, Claim *claim, uint32_t n)
{
    ngx_str_t key;
    ZoneConf *zone;
    Limit *limit;
    RemoteClaim *remote;

    limit = claim->data;
    zone = limit->zone;
    remote = claim->remote;

    if (claim->outcome != Outcome::kRejected
        || (remote && claim->verdict && remote->source == Source::kFallback)) {
        return;
    }

    if (remote) {
        key = remote->key;

    } else if (get_text(r, &zone->key, &key) != NGX_OK) {
        return;
    }

    limit_sliding::top_add(zone->memory.aside.top, claim->hash, key.data,
                           key.len, n, ngx_current_msec);
}

/* NGX_DECLINED: the key is not limited. */

ngx_int_t own_limit(Claim *claim, Overrides *own)
{
    uint32_t limit;

    limit = limit_sliding::own_find(own, claim->hash);

    if (limit == kOwnOff) {
        return NGX_DECLINED;
    }

    if (limit != kOwnNone) {
        claim->limit = limit;
    }

    return NGX_OK;
}

} // namespace limit_sliding
