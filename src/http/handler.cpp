
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

#include "http/handler.hpp"

#include "http/accounting.hpp"
#include "http/apply.hpp"
#include "http/configuration.hpp"
#include "http/context.hpp"
#include "http/delay.hpp"
#include "http/evaluation.hpp"
#include "http/limit_set.hpp"
#include "http/log.hpp"
#include "http/module.hpp"
#include "http/remote_claims.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static ngx_int_t run_stage(ngx_http_request_t *r, Stage stage);
static ngx_inline ngx_int_t run_single(ngx_http_request_t *r, LocConf *lscf,
                                       Group *group);
static ngx_int_t run_groups(ngx_http_request_t *r, LocConf *lscf, Group *group,
                            Context *octx);
static ngx_int_t decide_claims(ngx_http_request_t *r, LocConf *lscf,
                               Context *ctx, Group *group);
static ngx_int_t collect_claims(ngx_http_request_t *r, Context *ctx,
                                Group *group);
static inline ngx_int_t fill_claim(ngx_http_request_t *r, Limit *limit,
                                   Claim *claim);

/* In the access phase, which nginx runs for main requests only. */

ngx_int_t access_handler(ngx_http_request_t *r)
{
    return run_stage(r, kBeforeAuth);
}

/* In the precontent phase, if any limit is after_auth. */

ngx_int_t after_auth_handler(ngx_http_request_t *r)
{
    if (r != r->main) {
        return NGX_DECLINED;
    }

    return run_stage(r, kAfterAuth);
}

static ngx_int_t run_stage(ngx_http_request_t *r, Stage stage)
{
    Context *octx;
    LocConf *lscf;
    Group *group;

    lscf = ngx_http_get_module_loc_conf(r, ngx_http_limit_sliding_module);

    group = lscf->groups[stage];

    if (group == NULL) {
        return NGX_DECLINED;
    }

    octx = get_ctx(r);

    if (octx == NULL && group->single) {
        return run_single(r, lscf, group);
    }

    return run_groups(r, lscf, group, octx);
}

/*
 * The same as below, for nearly all requests: a plain case, which takes fewer
 * instructions by a third.
 */

static ngx_inline ngx_int_t run_single(ngx_http_request_t *r, LocConf *lscf,
                                       Group *group)
{
    ngx_int_t rc;
    ngx_msec_t delay;
    Claim *claim;
    Context *ctx;

    ctx = create_ctx(r, 1);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    claim = ctx->claims;

    rc = fill_claim(r, group->limits, claim);

    if (rc != NGX_OK) {
        return rc == NGX_DECLINED ? NGX_DECLINED
                                  : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->headers = lscf->headers;
    ctx->now_ms = ngx_current_msec;
    ctx->described = claim;
    ctx->nclaims = 1;

    (void)limit_sliding::acquire(claim, 1, ctx->now_ms);

    if (claim->outcome != Outcome::kAdmitted) {
        tally(group->limits->zone, kCountRejected);
        add_offender(r, claim);
        return reject(r, lscf, ctx);
    }

    if (group->leaky && limit_sliding::claim_delay_ms(claim, ctx->now_ms)) {
        delay = queue_delay_ms(r, lscf, ctx, 0);

        tally(group->limits->zone, kCountDelayed);
        return suspend(r, ctx, delay);
    }

    tally(group->limits->zone, kCountPassed);

    return NGX_DECLINED;
}

static ngx_int_t run_groups(ngx_http_request_t *r, LocConf *lscf, Group *group,
                            Context *octx)
{
    ngx_int_t rc;
    ngx_uint_t first, told;
    ngx_msec_t delay, ms;
    Context *ctx;

    delay = 0;
    told = 0;

    if (octx == NULL) {
        ctx = create_ctx(r, group->nclaims);

    } else if (octx->status == Status::kRejected) {
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
        ctx = extend_ctx(r, octx, group->nclaims);
    }

    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    do {
        first = ctx->nclaims;

        if (told) {
            told = 0;
            rc = conclude(ctx);

        } else {
            rc = decide_claims(r, lscf, ctx, group);
        }

        if (rc == NGX_ERROR) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        if (rc == NGX_AGAIN) {
            ctx->wait->group = group;
            ctx->wait->delay = delay;
            return NGX_AGAIN;
        }

        account(r, ctx, first, rc == NGX_BUSY);

        if (rc == NGX_BUSY) {

            if (!group->dry_run) {
                return reject(r, lscf, ctx);
            }

            would_reject(r, lscf, ctx);

        } else if (group->leaky) {
            ms = queue_delay_ms(r, lscf, ctx, first);

            if (!group->dry_run) {
                delay = ms;
            }
        }

        group = group->next;

    } while (group);

    if (delay) {
        return suspend(r, ctx, delay);
    }

    return NGX_DECLINED;
}

/*
 * Decides the limits of a group, as far as they are accounted and were not
 * decided before a redirect.  NGX_OK: admitted; NGX_BUSY: rejected.
 */

static ngx_int_t decide_claims(ngx_http_request_t *r, LocConf *lscf,
                               Context *ctx, Group *group)
{
    ngx_int_t n;
    Claim *claims;

    n = collect_claims(r, ctx, group);

    if (n <= 0) {
        return n;
    }

    claims = &ctx->claims[ctx->nclaims];

    ctx->headers = lscf->headers;
    ctx->now_ms = ngx_current_msec;

    if (group->remote && claims[n - 1].remote) {
        return decide_remote(r, ctx, n);
    }

    return decided(ctx, n,
                   &claims[limit_sliding::acquire(claims, n, ctx->now_ms)]);
}

/* The next n claims are, and `claim` is that of them which describes them. */

ngx_int_t decided(Context *ctx, ngx_uint_t n, Claim *claim)
{
    Claim *claims;

    claims = &ctx->claims[ctx->nclaims];

    ctx->nclaims += n;

    if (claims == ctx->claims) {
        ctx->described = claim;

    } else if (claim->outcome != Outcome::kAdmitted) {
        ctx->described = claim;

    } else if (ctx->described->outcome == Outcome::kAdmitted) {
        ctx->described = &ctx->claims[limit_sliding::tightest(
            ctx->claims, ctx->nclaims, ctx->now_ms)];
    }

    return claim->outcome == Outcome::kAdmitted ? NGX_OK : NGX_BUSY;
}

/* Makes a claim of every limit that is to be decided; returns their number. */

static ngx_int_t collect_claims(ngx_http_request_t *r, Context *ctx,
                                Group *group)
{
    ngx_int_t rc;
    Claim *claims, *claim;
    Limit *limit, *last;

    claims = &ctx->claims[ctx->nclaims];
    claim = claims;

    limit = group->limits;

    for (last = limit + group->nlimits; limit != last; limit++) {
        if (is_decided(ctx, limit->zone)) {
            continue;
        }

        rc = fill_claim(r, limit, claim);

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

static inline ngx_int_t fill_claim(ngx_http_request_t *r, Limit *limit,
                                   Claim *claim)
{
    ngx_int_t rc;
    ngx_str_t key;
    ZoneConf *zone;

    zone = limit->zone;

    if (get_text(r, &zone->key, &key) != NGX_OK) {
        return NGX_ERROR;
    }

    if (key.len == 0) {
        return NGX_DECLINED;
    }

    if (key.len > 65535) {
        log_long_key(r, zone, key);
        return NGX_DECLINED;
    }

    claim->zone = zone->memory.table;
    claim->policy = &zone->policy;
    claim->limit = limit->limit;
    claim->cost = limit->cost;
    claim->look = 0;
    claim->data = limit;
    claim->verdict = NULL;
    claim->remote = NULL;
    claim->counts = &zone->worker.counters->slots;

    claim->hash
        = limit_sliding::zone_hash(zone->memory.table, key.data, key.len);

    if (limit->evaluated) {
        rc = evaluate_claim(r, limit, claim);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (zone->redis) {
        return add_remote(r, claim, &zone->remote, &key);
    }

    if (zone->memory.aside.own->held) {
        return own_limit(claim, zone->memory.aside.own);
    }

    return NGX_OK;
}

} // namespace limit_sliding
