
/*
 * Copyright (C) the limit_sliding authors
 */


/* The limits of a place, sorted for the handlers. */


#include "http/http.h"


static ngx_int_t ngx_http_limit_sliding_init_limit(ngx_conf_t *cf,
    ngx_http_limit_sliding_limit_t *limit);
static ngx_int_t ngx_http_limit_sliding_init_groups(ngx_conf_t *cf,
    ngx_http_limit_sliding_set_t *set, ngx_uint_t dry_run);
static ngx_int_t ngx_http_limit_sliding_init_group(ngx_conf_t *cf,
    ngx_http_limit_sliding_set_t *set, ngx_uint_t after_auth, ngx_uint_t all,
    ngx_uint_t watched, ngx_http_limit_sliding_group_t **next);
static ngx_int_t ngx_http_limit_sliding_sort(ngx_conf_t *cf,
    ngx_http_limit_sliding_group_t *group);


/* All zones are known by now. */

ngx_int_t
ngx_http_limit_sliding_init_sets(ngx_conf_t *cf,
    ngx_http_limit_sliding_main_conf_t *lsmcf)
{
    ngx_uint_t                       i, j;
    ngx_http_limit_sliding_set_t   **sets;
    ngx_http_limit_sliding_limit_t  *limits;

    sets = lsmcf->sets.elts;

    for (i = 0; i < lsmcf->sets.nelts; i++) {
        limits = sets[i]->limits.elts;

        for (j = 0; j < sets[i]->limits.nelts; j++) {
            if (ngx_http_limit_sliding_init_limit(cf, &limits[j]) != NGX_OK) {
                return NGX_ERROR;
            }
        }

        if (ngx_http_limit_sliding_init_groups(cf, sets[i], 0) != NGX_OK
            || ngx_http_limit_sliding_init_groups(cf, sets[i], 1) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_limit_sliding_init_limit(ngx_conf_t *cf,
    ngx_http_limit_sliding_limit_t *limit)
{
    ngx_http_limit_sliding_zone_t  *zone;

    zone = limit->zone;

    if (limit->rate.count) {
        if (ngx_http_limit_sliding_rate_limit(cf, &limit->rate_word,
                                              &limit->rate,
                                              zone->policy.window_ms,
                                              &limit->limit, limit->file,
                                              limit->line)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

    } else {
        limit->limit = zone->limit;
        limit->rates[limit->rates[0] ? 1 : 0] = zone->rate;
    }

    if (limit->rates[0]) {
        zone->variable = 1;
    }

    limit->evaluated = (limit->rates[0] || limit->cost_value
                        || limit->count_status);

    return ngx_http_limit_sliding_init_fields(cf->pool, limit);
}


/* With dry_run, all limits are in dry run. */

static ngx_int_t
ngx_http_limit_sliding_init_groups(ngx_conf_t *cf,
    ngx_http_limit_sliding_set_t *set, ngx_uint_t dry_run)
{
    ngx_uint_t                       i;
    ngx_http_limit_sliding_group_t  *next;

    for (i = 0; i < NGX_HTTP_LIMIT_SLIDING_NSTAGES; i++) {
        next = NULL;

        if (ngx_http_limit_sliding_init_group(cf, set, i, dry_run, 1, &next)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (!dry_run
            && ngx_http_limit_sliding_init_group(cf, set, i, 0, 0, &next)
               != NGX_OK)
        {
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

static ngx_int_t
ngx_http_limit_sliding_init_group(ngx_conf_t *cf,
    ngx_http_limit_sliding_set_t *set, ngx_uint_t after_auth, ngx_uint_t all,
    ngx_uint_t watched, ngx_http_limit_sliding_group_t **next)
{
    ngx_uint_t                       i;
    ngx_http_limit_sliding_limit_t  *limits, *limit;
    ngx_http_limit_sliding_group_t  *group;

    group = ngx_pcalloc(cf->pool, sizeof(ngx_http_limit_sliding_group_t));
    if (group == NULL) {
        return NGX_ERROR;
    }

    group->limits = ngx_palloc(cf->pool,
                               set->limits.nelts
                               * sizeof(ngx_http_limit_sliding_limit_t));
    if (group->limits == NULL) {
        return NGX_ERROR;
    }

    limits = set->limits.elts;

    for (i = 0; i < set->limits.nelts; i++) {

        if (limits[i].after_auth != after_auth
            || (all || limits[i].dry_run) != watched)
        {
            continue;
        }

        limit = &group->limits[group->nlimits++];
        *limit = limits[i];
        limit->dry_run = watched;

        group->leaky |= (limit->zone->policy.algorithm
                         == LIMIT_SLIDING_LEAKY_BUCKET);
    }

    if (ngx_http_limit_sliding_sort(cf, group) != NGX_OK) {
        return NGX_ERROR;
    }

    if (group->nlimits == 0) {
        return NGX_OK;
    }

    group->single = (group->nlimits == 1 && *next == NULL && !watched
                     && !group->remote);
    group->dry_run = watched;
    group->next = *next;
    group->nclaims = group->nlimits + (*next ? (*next)->nclaims : 0);

    *next = group;

    return NGX_OK;
}


/* Limits of one node come first: what they reject is not asked of Redis. */

static ngx_int_t
ngx_http_limit_sliding_sort(ngx_conf_t *cf,
    ngx_http_limit_sliding_group_t *group)
{
    ngx_uint_t                       i, j, n;
    ngx_http_limit_sliding_limit_t  *limits, limit;

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
                          &limits[n].zone->redis->name,
                          &limits[i].zone->redis->name,
                          limits[i].file, limits[i].line);
            return NGX_ERROR;
        }
    }

    if (group->nlimits - n > NGX_HTTP_LIMIT_SLIDING_CLAIMS) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "more than %d limits of redis at one place in %s:%ui",
                      NGX_HTTP_LIMIT_SLIDING_CLAIMS, limits[n].file,
                      limits[n].line);
        return NGX_ERROR;
    }

    return NGX_OK;
}
