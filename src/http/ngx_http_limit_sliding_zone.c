
/*
 * Copyright (C) the limit_sliding authors
 */


#include "ngx_http_limit_sliding.h"

#include <unistd.h>


static ngx_int_t ngx_http_limit_sliding_quote(ngx_pool_t *pool,
    ngx_str_t *text, ngx_str_t *quoted);
static ngx_int_t ngx_http_limit_sliding_init_zone(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_int_t ngx_http_limit_sliding_reuse_zone(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone);
static ngx_shm_zone_t *ngx_http_limit_sliding_find_shm_zone(
    ngx_list_t *zones, ngx_str_t *name);
static ngx_int_t ngx_http_limit_sliding_compare_zones(ngx_pool_t *pool,
    ngx_http_limit_sliding_zone_t *zone, ngx_shm_zone_t *oshm_zone);


/*
 * nginx hands the memory of a zone over to the next cycle if name, size and
 * tag are the same.  Our zones have one of two tags: the same as before where
 * the state is to be kept, the other one where it is not.
 */

static ngx_uint_t  ngx_http_limit_sliding_tags[2];

#define ngx_http_limit_sliding_is_tag(tag)                                    \
    ((tag) == &ngx_http_limit_sliding_tags[0]                                 \
     || (tag) == &ngx_http_limit_sliding_tags[1])


/*
 * The zone of this name, which may be defined before or after its first
 * mention; ngx_http_limit_sliding_init_zones() sees to it that it is.
 */

ngx_http_limit_sliding_zone_t *
ngx_http_limit_sliding_get_zone(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_uint_t                            i;
    ngx_http_limit_sliding_zone_t        *zone, **zones;
    ngx_http_limit_sliding_main_conf_t   *lsmcf;

    lsmcf = ngx_http_conf_get_module_main_conf(cf,
                                               ngx_http_limit_sliding_module);

    zones = lsmcf->zones.elts;

    for (i = 0; i < lsmcf->zones.nelts; i++) {
        if (zones[i]->name.len == name->len
            && ngx_strncmp(zones[i]->name.data, name->data, name->len) == 0)
        {
            return zones[i];
        }
    }

    zones = ngx_array_push(&lsmcf->zones);
    if (zones == NULL) {
        return NULL;
    }

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_http_limit_sliding_zone_t));
    if (zone == NULL) {
        return NULL;
    }

    zone->name = *name;
    zone->file = cf->conf_file->file.name.data;
    zone->line = cf->conf_file->line;

    *zones = zone;

    return zone;
}


ngx_int_t
ngx_http_limit_sliding_add_zone(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, size_t size)
{
    ngx_shm_zone_t  *shm_zone;

    shm_zone = ngx_shared_memory_add(cf, &zone->name, size,
                                     &ngx_http_limit_sliding_tags[0]);
    if (shm_zone == NULL) {
        return NGX_ERROR;
    }

    shm_zone->init = ngx_http_limit_sliding_init_zone;
    shm_zone->data = zone;

    zone->shm_zone = shm_zone;

    return ngx_http_limit_sliding_quote(cf->pool, &zone->name, &zone->quoted);
}


/*
 * A zone's name as a structured field's string.  Those hold printable ASCII
 * only; other bytes are shown as %XX.
 */

static ngx_int_t
ngx_http_limit_sliding_quote(ngx_pool_t *pool, ngx_str_t *text,
    ngx_str_t *quoted)
{
    u_char  *p, *src, *last;

    p = ngx_pnalloc(pool, 3 * text->len + 2);
    if (p == NULL) {
        return NGX_ERROR;
    }

    quoted->data = p;

    last = text->data + text->len;

    *p++ = '"';

    for (src = text->data; src < last; src++) {

        if (*src < ' ' || *src > '~') {
            p = ngx_sprintf(p, "%%%02Xd", *src);
            continue;
        }

        if (*src == '"' || *src == '\\') {
            *p++ = '\\';
        }

        *p++ = *src;
    }

    *p++ = '"';

    quoted->len = p - quoted->data;

    return NGX_OK;
}


ngx_int_t
ngx_http_limit_sliding_init_zones(ngx_conf_t *cf,
    ngx_http_limit_sliding_main_conf_t *lsmcf)
{
    ngx_uint_t                       i;
    ngx_http_limit_sliding_zone_t  **zones;

    zones = lsmcf->zones.elts;

    for (i = 0; i < lsmcf->zones.nelts; i++) {

        if (zones[i]->shm_zone == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "unknown limit_sliding zone \"%V\" in %s:%ui",
                          &zones[i]->name, zones[i]->file, zones[i]->line);
            return NGX_ERROR;
        }

        if (ngx_http_limit_sliding_reuse_zone(cf, zones[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* Says in the zone's tag whether it keeps the memory that it had. */

static ngx_int_t
ngx_http_limit_sliding_reuse_zone(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone)
{
    ngx_shm_zone_t  *oshm_zone;

    oshm_zone = ngx_http_limit_sliding_find_shm_zone(
                                 &cf->cycle->old_cycle->shared_memory,
                                 &zone->name);

    if (oshm_zone == NULL || !ngx_http_limit_sliding_is_tag(oshm_zone->tag)) {
        return NGX_OK;
    }

    if (ngx_http_limit_sliding_compare_zones(cf->pool, zone, oshm_zone)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    zone->shm_zone->tag = oshm_zone->tag;

    if (zone->restarted.len) {
        zone->shm_zone->tag =
               (oshm_zone->tag == &ngx_http_limit_sliding_tags[0])
               ? &ngx_http_limit_sliding_tags[1]
               : &ngx_http_limit_sliding_tags[0];
    }

    return NGX_OK;
}


static ngx_shm_zone_t *
ngx_http_limit_sliding_find_shm_zone(ngx_list_t *zones, ngx_str_t *name)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_shm_zone_t   *shm_zone;

    for (part = &zones->part; part; part = part->next) {
        shm_zone = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (shm_zone[i].shm.name.len == name->len
                && ngx_strncmp(shm_zone[i].shm.name.data, name->data,
                               name->len)
                   == 0)
            {
                return &shm_zone[i];
            }
        }
    }

    return NULL;
}


/* Leaves zone->restarted empty where the states mean what they meant. */

static ngx_int_t
ngx_http_limit_sliding_compare_zones(ngx_pool_t *pool,
    ngx_http_limit_sliding_zone_t *zone, ngx_shm_zone_t *oshm_zone)
{
    size_t                          len;
    u_char                         *p;
    ngx_str_t                      *key, *okey;
    limit_sliding_policy_t         *policy, *opolicy;
    ngx_http_limit_sliding_zone_t  *ozone;

    ozone = oshm_zone->data;

    policy = &zone->policy;
    opolicy = &ozone->policy;

    key = &zone->key.complex.value;
    okey = &ozone->key.complex.value;

    len = sizeof("its window was  ms, now  ms") + 4 * NGX_INT64_LEN
          + key->len + okey->len;

    p = ngx_pnalloc(pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    zone->restarted.data = p;

    if (key->len != okey->len
        || ngx_strncmp(key->data, okey->data, key->len) != 0)
    {
        p = ngx_slprintf(p, p + len, "its key was \"%V\", now \"%V\"",
                         okey, key);

    } else if (policy->window_ms != opolicy->window_ms) {
        p = ngx_slprintf(p, p + len, "its window was %uL ms, now %uL ms",
                         opolicy->window_ms, policy->window_ms);

    } else if (policy->algorithm != opolicy->algorithm) {
        p = ngx_slprintf(p, p + len, "its algorithm was %V, now %V",
                         ngx_http_limit_sliding_algorithm(opolicy->algorithm),
                         ngx_http_limit_sliding_algorithm(policy->algorithm));

    } else if (ngx_max(policy->precision, 1)
               != ngx_max(opolicy->precision, 1))
    {
        p = ngx_slprintf(p, p + len, "its precision was %uD, now %uD",
                         ngx_max(opolicy->precision, 1),
                         ngx_max(policy->precision, 1));

    } else if (policy->burst != opolicy->burst) {
        p = ngx_slprintf(p, p + len, "its burst was %uD, now %uD",
                         opolicy->burst, policy->burst);

    } else if (zone->shm_zone->shm.size != oshm_zone->shm.size) {
        p = ngx_slprintf(p, p + len, "its size was %uz, now %uz",
                         oshm_zone->shm.size, zone->shm_zone->shm.size);
    }

    zone->restarted.len = p - zone->restarted.data;

    return NGX_OK;
}


/*
 * Runs before it is certain that the new configuration will be used, so the
 * memory of a running zone is taken over and not touched.
 */

static ngx_int_t
ngx_http_limit_sliding_init_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_http_limit_sliding_zone_t  *ozone = data;

    size_t                          size;
    uint8_t                         secret[LIMIT_SLIDING_SECRET_BYTES];
    void                           *memory;
    uint64_t                        offset_ms;
    ngx_time_t                     *tp;
    ngx_slab_pool_t                *shpool;
    ngx_http_limit_sliding_zone_t  *zone;

    zone = shm_zone->data;

    if (ozone) {
        zone->zone = ozone->zone;
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;
    shpool->log_nomem = 0;

    size = shpool->pfree * ngx_pagesize;

    memory = ngx_slab_alloc(shpool, size);
    if (memory == NULL) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "limit_sliding zone \"%V\" is too small",
                      &shm_zone->shm.name);
        return NGX_ERROR;
    }

#if (NGX_DEBUG_MALLOC)
    /* else pages come zeroed, and are not in memory until they are used */
    ngx_memzero(memory, size);
#endif

    if (getentropy(secret, sizeof(secret)) != 0) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, ngx_errno,
                      "getentropy() for limit_sliding zone \"%V\" failed",
                      &shm_zone->shm.name);
        return NGX_ERROR;
    }

    /* nginx's clock is monotonic, windows begin with those of UTC */

    tp = ngx_timeofday();
    offset_ms = (uint64_t) tp->sec * 1000 + tp->msec - ngx_current_msec;

    zone->zone = limit_sliding_zone_init(memory, size, &zone->policy,
                                         offset_ms, secret);
    if (zone->zone == NULL) {
        return NGX_ERROR;
    }

    shpool->data = zone->zone;

    return NGX_OK;
}


/* The new configuration is in use from here on. */

ngx_int_t
ngx_http_limit_sliding_init_module(ngx_cycle_t *cycle)
{
    ngx_uint_t                            i;
    ngx_http_limit_sliding_zone_t       **zones;
    ngx_http_limit_sliding_main_conf_t   *lsmcf;

    lsmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                                ngx_http_limit_sliding_module);
    if (lsmcf == NULL) {
        return NGX_OK;
    }

    zones = lsmcf->zones.elts;

    for (i = 0; i < lsmcf->zones.nelts; i++) {
        if (zones[i]->restarted.len) {
            ngx_log_error(NGX_LOG_NOTICE, cycle->log, 0,
                          "limit_sliding zone \"%V\" starts empty: %V",
                          &zones[i]->name, &zones[i]->restarted);
        }
    }

    return NGX_OK;
}
