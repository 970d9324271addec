
/*
 * Copyright (C) the limit_sliding authors
 */


/*
 * Life of a request:
 *
 *   limit_sliding directive   src/http   configuration -> a location's limits
 *   access handler            src/http   key, cost, rate, clock -> core
 *     shared memory           src/core   find the key's state, compute,
 *                                        compare-and-swap
 *     redis                   src/redis  known refusal, else a call that many
 *                                        share; suspend, resume
 *   verdict                   src/core   allowed? remaining, reset, retry after
 *   apply                     src/http   DECLINED | delay | status, headers,
 *                                        log, counters
 */


#include "http/http.h"


static ngx_int_t ngx_http_limit_sliding_run_stage(ngx_http_request_t *r,
    ngx_http_limit_sliding_stage_e stage);
static ngx_inline ngx_int_t ngx_http_limit_sliding_run_single(
    ngx_http_request_t *r, ngx_http_limit_sliding_conf_t *lscf,
    ngx_http_limit_sliding_group_t *group);
static ngx_int_t ngx_http_limit_sliding_run_groups(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_group_t *group,
    ngx_http_limit_sliding_ctx_t *octx);
static ngx_int_t ngx_http_limit_sliding_decide(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_ctx_t *ctx,
    ngx_http_limit_sliding_group_t *group);
static ngx_int_t ngx_http_limit_sliding_collect(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_http_limit_sliding_group_t *group);
static ngx_http_limit_sliding_inline ngx_int_t ngx_http_limit_sliding_claim(
    ngx_http_request_t *r, ngx_http_limit_sliding_limit_t *limit,
    limit_sliding_claim_t *claim);


/* In the access phase, which nginx runs for main requests only. */

ngx_int_t
ngx_http_limit_sliding_handler(ngx_http_request_t *r)
{
    return ngx_http_limit_sliding_run_stage(r,
                                           NGX_HTTP_LIMIT_SLIDING_BEFORE_AUTH);
}


/* In the precontent phase, if any limit is after_auth. */

ngx_int_t
ngx_http_limit_sliding_after_auth_handler(ngx_http_request_t *r)
{
    if (r != r->main) {
        return NGX_DECLINED;
    }

    return ngx_http_limit_sliding_run_stage(r,
                                            NGX_HTTP_LIMIT_SLIDING_AFTER_AUTH);
}


static ngx_int_t
ngx_http_limit_sliding_run_stage(ngx_http_request_t *r,
    ngx_http_limit_sliding_stage_e stage)
{
    ngx_http_limit_sliding_ctx_t    *octx;
    ngx_http_limit_sliding_conf_t   *lscf;
    ngx_http_limit_sliding_group_t  *group;

    lscf = ngx_http_get_module_loc_conf(r, ngx_http_limit_sliding_module);

    group = lscf->groups[stage];

    if (group == NULL) {
        return NGX_DECLINED;
    }

    octx = ngx_http_limit_sliding_get_ctx(r);

    if (octx == NULL && group->single) {
        return ngx_http_limit_sliding_run_single(r, lscf, group);
    }

    return ngx_http_limit_sliding_run_groups(r, lscf, group, octx);
}


/*
 * The same as below, for nearly all requests: a plain case, which takes fewer
 * instructions by a third.
 */

static ngx_inline ngx_int_t
ngx_http_limit_sliding_run_single(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_group_t *group)
{
    ngx_int_t                      rc;
    ngx_msec_t                     delay;
    limit_sliding_claim_t         *claim;
    ngx_http_limit_sliding_ctx_t  *ctx;

    ctx = ngx_http_limit_sliding_create_ctx(r, 1);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    claim = ctx->claims;

    rc = ngx_http_limit_sliding_claim(r, group->limits, claim);

    if (rc != NGX_OK) {
        return rc == NGX_DECLINED ? NGX_DECLINED
                                  : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->headers = lscf->headers;
    ctx->now_ms = ngx_current_msec;
    ctx->described = claim;
    ctx->nclaims = 1;

    (void) limit_sliding_acquire(claim, 1, ctx->now_ms);

    if (claim->outcome != LIMIT_SLIDING_ADMITTED) {
        ngx_http_limit_sliding_tally(group->limits->zone,
                                     LIMIT_SLIDING_COUNT_REJECTED);
        ngx_http_limit_sliding_add_offender(r, claim);
        return ngx_http_limit_sliding_reject(r, lscf, ctx);
    }

    if (group->leaky && limit_sliding_claim_delay_ms(claim, ctx->now_ms)) {
        delay = ngx_http_limit_sliding_delay(r, lscf, ctx, 0);

        ngx_http_limit_sliding_tally(group->limits->zone,
                                     LIMIT_SLIDING_COUNT_DELAYED);
        return ngx_http_limit_sliding_suspend(r, ctx, delay);
    }

    ngx_http_limit_sliding_tally(group->limits->zone,
                                 LIMIT_SLIDING_COUNT_PASSED);

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_limit_sliding_run_groups(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_group_t *group,
    ngx_http_limit_sliding_ctx_t *octx)
{
    ngx_int_t                      rc;
    ngx_uint_t                     first, told;
    ngx_msec_t                     delay, ms;
    ngx_http_limit_sliding_ctx_t  *ctx;

    delay = 0;
    told = 0;

    if (octx == NULL) {
        ctx = ngx_http_limit_sliding_create_ctx(r, group->nclaims);

    } else if (octx->status == NGX_HTTP_LIMIT_SLIDING_REJECTED) {
        return NGX_DECLINED;

    } else if (octx->waiting) {
        octx->waiting = 0;
        return NGX_DECLINED;

    } else if (octx->wait && octx->wait->group) {
        ctx = octx;
        group = ctx->wait->group;
        delay = ctx->wait->delay;
        ctx->wait->group = NULL;
        told = 1;

    } else {
        ctx = ngx_http_limit_sliding_extend_ctx(r, octx, group->nclaims);
    }

    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    do {
        first = ctx->nclaims;

        if (told) {
            told = 0;
            rc = ngx_http_limit_sliding_conclude(ctx);

        } else {
            rc = ngx_http_limit_sliding_decide(r, lscf, ctx, group);
        }

        if (rc == NGX_ERROR) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        if (rc == NGX_AGAIN) {
            ctx->wait->group = group;
            ctx->wait->delay = delay;
            return NGX_AGAIN;
        }

        ngx_http_limit_sliding_account(r, ctx, first, rc == NGX_BUSY);

        if (rc == NGX_BUSY) {

            if (!group->dry_run) {
                return ngx_http_limit_sliding_reject(r, lscf, ctx);
            }

            ngx_http_limit_sliding_would_reject(r, lscf, ctx);

        } else if (group->leaky) {
            ms = ngx_http_limit_sliding_delay(r, lscf, ctx, first);

            if (!group->dry_run) {
                delay = ms;
            }
        }

        group = group->next;

    } while (group);

    if (delay) {
        return ngx_http_limit_sliding_suspend(r, ctx, delay);
    }

    return NGX_DECLINED;
}


/*
 * Decides the limits of a group, as far as they are accounted and were not
 * decided before a redirect.  NGX_OK: admitted; NGX_BUSY: rejected.
 */

static ngx_int_t
ngx_http_limit_sliding_decide(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_ctx_t *ctx,
    ngx_http_limit_sliding_group_t *group)
{
    ngx_int_t               n;
    limit_sliding_claim_t  *claims;

    n = ngx_http_limit_sliding_collect(r, ctx, group);

    if (n <= 0) {
        return n;
    }

    claims = &ctx->claims[ctx->nclaims];

    ctx->headers = lscf->headers;
    ctx->now_ms = ngx_current_msec;

    if (group->remote && claims[n - 1].remote) {
        return ngx_http_limit_sliding_decide_remote(r, ctx, n);
    }

    return ngx_http_limit_sliding_decided(ctx, n,
                      &claims[limit_sliding_acquire(claims, n, ctx->now_ms)]);
}


/* The next n claims are, and `claim` is that of them which describes them. */

ngx_int_t
ngx_http_limit_sliding_decided(ngx_http_limit_sliding_ctx_t *ctx,
    ngx_uint_t n, limit_sliding_claim_t *claim)
{
    limit_sliding_claim_t  *claims;

    claims = &ctx->claims[ctx->nclaims];

    ctx->nclaims += n;

    if (claims == ctx->claims) {
        ctx->described = claim;

    } else if (claim->outcome != LIMIT_SLIDING_ADMITTED) {
        ctx->described = claim;

    } else if (ctx->described->outcome == LIMIT_SLIDING_ADMITTED) {
        ctx->described = &ctx->claims[limit_sliding_tightest(ctx->claims,
                                                             ctx->nclaims,
                                                             ctx->now_ms)];
    }

    return claim->outcome == LIMIT_SLIDING_ADMITTED ? NGX_OK : NGX_BUSY;
}


/* Makes a claim of every limit that is to be decided; returns their number. */

static ngx_int_t
ngx_http_limit_sliding_collect(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_http_limit_sliding_group_t *group)
{
    ngx_int_t                        rc;
    limit_sliding_claim_t           *claims, *claim;
    ngx_http_limit_sliding_limit_t  *limit, *last;

    claims = &ctx->claims[ctx->nclaims];
    claim = claims;

    limit = group->limits;

    for (last = limit + group->nlimits; limit != last; limit++) {
        if (ngx_http_limit_sliding_is_decided(ctx, limit->zone)) {
            continue;
        }

        rc = ngx_http_limit_sliding_claim(r, limit, claim);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_OK) {
            claim++;
        }
    }

    return claim - claims;
}


/* NGX_DECLINED: not accounted. */

static ngx_http_limit_sliding_inline ngx_int_t
ngx_http_limit_sliding_claim(ngx_http_request_t *r,
    ngx_http_limit_sliding_limit_t *limit, limit_sliding_claim_t *claim)
{
    ngx_int_t                       rc;
    ngx_str_t                       key;
    ngx_http_limit_sliding_zone_t  *zone;

    zone = limit->zone;

    if (ngx_http_limit_sliding_get(r, &zone->key, &key) != NGX_OK) {
        return NGX_ERROR;
    }

    if (key.len == 0) {
        return NGX_DECLINED;
    }

    if (key.len > 65535) {
        ngx_http_limit_sliding_log_long_key(r, zone, key);
        return NGX_DECLINED;
    }

    claim->zone = zone->zone;
    claim->policy = &zone->policy;
    claim->limit = limit->limit;
    claim->cost = limit->cost;
    claim->look = 0;
    claim->data = limit;
    claim->verdict = NULL;
    claim->remote = NULL;
    claim->counts = &zone->counters->slots;

    claim->hash = limit_sliding_zone_hash(zone->zone, key.data, key.len);

    if (limit->evaluated) {
        rc = ngx_http_limit_sliding_evaluate(r, limit, claim);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (zone->redis) {
        return ngx_http_limit_sliding_add_remote(r, claim, &zone->remote,
                                                 &key);
    }

    if (zone->aside.own->held) {
        return ngx_http_limit_sliding_own_limit(claim, zone->aside.own);
    }

    return NGX_OK;
}
