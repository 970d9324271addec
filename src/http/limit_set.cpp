
/*
 * Copyright (C) the limit_sliding authors
 */

/* The limits of a place, sorted for the handlers. */

#include "http/limit_set.hpp"

#include "http/configuration.hpp"
#include "http/count_status.hpp"
#include "http/expression.hpp"
#include "http/headers.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static ngx_int_t init_limit(ngx_conf_t *cf, Limit *limit);
static ngx_int_t init_groups(ngx_conf_t *cf, LimitSet *set, ngx_uint_t dry_run);
static ngx_int_t init_group(ngx_conf_t *cf, LimitSet *set,
                            ngx_uint_t after_auth, ngx_uint_t all,
                            ngx_uint_t watched, Group **next);
static ngx_int_t sort_limits(ngx_conf_t *cf, Group *group);

/* All zones are known by now. */

ngx_int_t init_sets(ngx_conf_t *cf, MainConf *lsmcf)
{
    ngx_uint_t i, j;
    LimitSet **sets;
    Limit *limits;

    sets = lsmcf->sets.elts;

    for (i = 0; i < lsmcf->sets.nelts; i++) {
        limits = sets[i]->limits.elts;

        for (j = 0; j < sets[i]->limits.nelts; j++) {
            if (init_limit(cf, &limits[j]) != NGX_OK) {
                return NGX_ERROR;
            }
        }

        if (init_groups(cf, sets[i], 0) != NGX_OK
            || init_groups(cf, sets[i], 1) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}

static ngx_int_t init_limit(ngx_conf_t *cf, Limit *limit)
{
    ZoneConf *zone;

    zone = limit->zone;

    if (limit->rate.count) {
        if (rate_limit(cf, &limit->rate_word, &limit->rate,
                       zone->policy.window_ms, &limit->limit, limit->file,
                       limit->line)
            != NGX_OK) {
            return NGX_ERROR;
        }

    } else {
        limit->limit = zone->limit;
        limit->rates[limit->rates[0] ? 1 : 0] = zone->rate;
    }

    if (limit->rates[0]) {
        zone->variable = 1;
    }

    limit->evaluated
        = (limit->rates[0] || limit->cost_value || limit->count_status);

    return init_fields(cf->pool, limit);
}

/* With dry_run, all limits are in dry run. */

static ngx_int_t init_groups(ngx_conf_t *cf, LimitSet *set, ngx_uint_t dry_run)
{
    ngx_uint_t i;
    Group *next;

    for (i = 0; i < kStages; i++) {
        next = NULL;

        if (init_group(cf, set, i, dry_run, 1, &next) != NGX_OK) {
            return NGX_ERROR;
        }

        if (!dry_run && init_group(cf, set, i, 0, 0, &next) != NGX_OK) {
            return NGX_ERROR;
        }

        set->groups[dry_run][i] = next;
    }

    return NGX_OK;
}

/*
 * Puts the limits of a stage which are watched, or not, before *next, if there
 * are any; with `all` every one is watched.
 */

static ngx_int_t init_group(ngx_conf_t *cf, LimitSet *set,
                            ngx_uint_t after_auth, ngx_uint_t all,
                            ngx_uint_t watched, Group **next)
{
    ngx_uint_t i;
    Limit *limits, *limit;
    Group *group;

    group = ngx_pcalloc(cf->pool, sizeof(Group));
    if (group == NULL) {
        return NGX_ERROR;
    }

    group->limits = ngx_palloc(cf->pool, set->limits.nelts * sizeof(Limit));
    if (group->limits == NULL) {
        return NGX_ERROR;
    }

    limits = set->limits.elts;

    for (i = 0; i < set->limits.nelts; i++) {

        if (limits[i].after_auth != after_auth
            || (all || limits[i].dry_run) != watched) {
            continue;
        }

        limit = &group->limits[group->nlimits++];
        *limit = limits[i];
        limit->dry_run = watched;

        group->leaky
            |= (limit->zone->policy.algorithm == Algorithm::kLeakyBucket);
    }

    if (sort_limits(cf, group) != NGX_OK) {
        return NGX_ERROR;
    }

    if (group->nlimits == 0) {
        return NGX_OK;
    }

    group->single
        = (group->nlimits == 1 && *next == NULL && !watched && !group->remote);
    group->dry_run = watched;
    group->next = *next;
    group->nclaims = group->nlimits + (*next ? (*next)->nclaims : 0);

    *next = group;

    return NGX_OK;
}

/* Limits of one node come first: what they reject is not asked of Redis. */

static ngx_int_t sort_limits(ngx_conf_t *cf, Group *group)
{
    ngx_uint_t i, j, n;
    Limit *limits, limit;

    limits = group->limits;
    n = 0;

    for (i = 0; i < group->nlimits; i++) {
        if (limits[i].zone->redis) {
            continue;
        }

        limit = limits[i];

        for (j = i; j > n; j--) {
            limits[j] = limits[j - 1];
        }

        limits[n++] = limit;
    }

    group->remote = (n < group->nlimits);

    for (i = n; i < group->nlimits; i++) {

        if (limits[i].zone->redis != limits[n].zone->redis) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "limits of one place are of \"redis=%V\" and "
                          "\"redis=%V\", it must be one, in %s:%ui",
                          &limits[n].zone->redis->settings.name,
                          &limits[i].zone->redis->settings.name, limits[i].file,
                          limits[i].line);
            return NGX_ERROR;
        }
    }

    if (group->nlimits - n > kClaimsMax) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "more than %d limits of redis at one place in %s:%ui",
                      kClaimsMax, limits[n].file, limits[n].line);
        return NGX_ERROR;
    }

    return NGX_OK;
}

} // namespace limit_sliding
