
/*
 * Copyright (C) the limit_sliding authors
 */


/* What is counted of requests that were decided. */


#include "http/http.h"


static void ngx_http_limit_sliding_add_rejections(ngx_http_request_t *r,
    limit_sliding_claim_t *claim, uint32_t n);


/*
 * Workers, those of the last cycle too, have slots of their own in nginx's
 * table of processes, and so counters of their own: until there are more of
 * them than counters.
 */

void
ngx_http_limit_sliding_init_counters(
    ngx_http_limit_sliding_main_conf_t *lsmcf)
{
    ngx_uint_t                       i;
    limit_sliding_aside_t           *aside;
    ngx_http_limit_sliding_zone_t  **zones;

    zones = lsmcf->zones.elts;

    for (i = 0; i < lsmcf->zones.nelts; i++) {
        aside = &zones[i]->aside;

        zones[i]->counters = &aside->counters[ngx_process_slot
                                              % aside->ncounters];
    }
}


/*
 * Counts the claims from `first` on, which were decided together, each in its
 * zone; `rejected` if any of them rejected the request.
 */

void
ngx_http_limit_sliding_account(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t first, ngx_uint_t rejected)
{
    ngx_uint_t                        i;
    limit_sliding_claim_t            *claim;
    limit_sliding_count_t             count;
    ngx_http_limit_sliding_limit_t   *limit;
    ngx_http_limit_sliding_remote_t  *remote;

    for (i = first; i < ctx->nclaims; i++) {
        claim = &ctx->claims[i];
        limit = claim->data;
        remote = claim->remote;

        if (claim->outcome == LIMIT_SLIDING_UNDECIDED) {
            continue;
        }

        if (claim->outcome != LIMIT_SLIDING_ADMITTED) {
            count = limit->dry_run ? LIMIT_SLIDING_COUNT_REJECTED_DRY_RUN
                                   : LIMIT_SLIDING_COUNT_REJECTED;

            ngx_http_limit_sliding_add_offender(r, claim);

        } else if (!rejected
                   && limit_sliding_claim_delay_ms(claim, ctx->now_ms))
        {
            count = limit->dry_run ? LIMIT_SLIDING_COUNT_DELAYED_DRY_RUN
                                   : LIMIT_SLIDING_COUNT_DELAYED;

        } else {
            count = LIMIT_SLIDING_COUNT_PASSED;
        }

        ngx_http_limit_sliding_tally(limit->zone, count);

        if (remote) {
            (void) ngx_atomic_fetch_add((ngx_atomic_t *)
                           &limit->zone->counters->sources[remote->source], 1);
        }
    }
}


/* For a claim that was rejected.  Most end here when there are many. */

void
ngx_http_limit_sliding_add_offender(ngx_http_request_t *r,
    limit_sliding_claim_t *claim)
{
    uint32_t                         n;
    ngx_http_limit_sliding_zone_t   *zone;
    ngx_http_limit_sliding_limit_t  *limit;

    limit = claim->data;
    zone = limit->zone;

    if (!zone->top) {
        return;
    }

    n = limit_sliding_top_weight(&zone->sampler, ngx_current_msec);

    if (n) {
        ngx_http_limit_sliding_add_rejections(r, claim, n);
    }
}


/* Of who is over its limit, not where the zone is full, or Redis away. */

static void
ngx_http_limit_sliding_add_rejections(ngx_http_request_t *r,
    limit_sliding_claim_t *claim, uint32_t n)
{
    ngx_str_t                         key;
    ngx_http_limit_sliding_zone_t    *zone;
    ngx_http_limit_sliding_limit_t   *limit;
    ngx_http_limit_sliding_remote_t  *remote;

    limit = claim->data;
    zone = limit->zone;
    remote = claim->remote;

    if (claim->outcome != LIMIT_SLIDING_REJECTED
        || (remote
            && claim->verdict
            && remote->source == NGX_HTTP_LIMIT_SLIDING_FALLBACK))
    {
        return;
    }

    if (remote) {
        key = remote->key;

    } else if (ngx_http_limit_sliding_get(r, &zone->key, &key) != NGX_OK) {
        return;
    }

    limit_sliding_top_add(zone->aside.top, claim->hash, key.data, key.len, n,
                          ngx_current_msec);
}


/* NGX_DECLINED: the key is not limited. */

ngx_int_t
ngx_http_limit_sliding_own_limit(limit_sliding_claim_t *claim,
    limit_sliding_own_t *own)
{
    uint32_t  limit;

    limit = limit_sliding_own_find(own, claim->hash);

    if (limit == LIMIT_SLIDING_OWN_OFF) {
        return NGX_DECLINED;
    }

    if (limit != LIMIT_SLIDING_OWN_NONE) {
        claim->limit = limit;
    }

    return NGX_OK;
}
