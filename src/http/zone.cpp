
/*
 * Copyright (C) the limit_sliding authors
 */

#include <unistd.h>

#include "http/zone.hpp"

#include "http/configuration.hpp"
#include "http/module.hpp"
#include "http/zone_reuse.hpp"

namespace limit_sliding {

static ngx_int_t quote_name(ngx_pool_t *pool, ngx_str_t *text,
                            ngx_str_t *quoted);
static ngx_int_t init_zone(ngx_shm_zone_t *shm_zone, void *data);
static ngx_int_t init_remote(ZoneConf *zone, ngx_slab_pool_t *shpool);
static void log_restarted(ngx_log_t *log, ZoneConf *zone);

/*
 * The zone of this name, which may be defined before or after its first
 * mention; init_zones() sees to it that it is.
 */

ZoneConf *get_zone(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_uint_t i;
    ZoneConf *zone, **zones;
    MainConf *lsmcf;

    lsmcf
        = ngx_http_conf_get_module_main_conf(cf, ngx_http_limit_sliding_module);

    zones = lsmcf->zones.elts;

    for (i = 0; i < lsmcf->zones.nelts; i++) {
        if (zones[i]->name.len == name->len
            && ngx_strncmp(zones[i]->name.data, name->data, name->len) == 0) {
            return zones[i];
        }
    }

    zones = ngx_array_push(&lsmcf->zones);
    if (zones == NULL) {
        return NULL;
    }

    zone = ngx_pcalloc(cf->pool, sizeof(ZoneConf));
    if (zone == NULL) {
        return NULL;
    }

    zone->name = *name;
    zone->file = cf->conf_file->file.name.data;
    zone->line = cf->conf_file->line;

    *zones = zone;

    return zone;
}

ngx_int_t add_zone(ngx_conf_t *cf, ZoneConf *zone, size_t size)
{
    ngx_shm_zone_t *shm_zone;

    shm_zone = ngx_shared_memory_add(cf, &zone->name, size, zone_tags);
    if (shm_zone == NULL) {
        return NGX_ERROR;
    }

    shm_zone->init = init_zone;
    shm_zone->data = zone;

    zone->shm_zone = shm_zone;

    return quote_name(cf->pool, &zone->name, &zone->quoted);
}

/*
 * A zone's name as a structured field's string.  Those hold printable ASCII
 * only; other bytes are shown as %XX.
 */

static ngx_int_t quote_name(ngx_pool_t *pool, ngx_str_t *text,
                            ngx_str_t *quoted)
{
    u_char *p, *src, *last;

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

ngx_int_t init_zones(ngx_conf_t *cf, MainConf *lsmcf)
{
    ngx_uint_t i;
    ZoneConf **zones;

    zones = lsmcf->zones.elts;

    for (i = 0; i < lsmcf->zones.nelts; i++) {

        if (zones[i]->shm_zone == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "unknown limit_sliding zone \"%V\" in %s:%ui",
                          &zones[i]->name, zones[i]->file, zones[i]->line);
            return NGX_ERROR;
        }

        if (reuse_zone(cf, zones[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}

/*
 * Runs before it is certain that the new configuration will be used, so the
 * memory of a running zone is taken over and not touched.
 */

static ngx_int_t init_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    ZoneConf *ozone = data;

    size_t size;
    uint8_t secret[kSecretBytes];
    u_char *memory;
    unsigned mask;
    uint64_t offset_ms;
    ngx_time_t *tp;
    ngx_slab_pool_t *shpool;
    ZoneConf *zone;

    zone = shm_zone->data;

    if (ozone) {
        zone->zone = ozone->zone;
        zone->aside = ozone->aside;
        zone->remote.refusals = ozone->remote.refusals;
        zone->remote.leases = ozone->remote.leases;
        zone->remote.told = ozone->remote.told;
        zone->remote.log_after = ozone->remote.log_after;
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *)shm_zone->shm.addr;
    shpool->log_nomem = 0;

    if (zone->redis && init_remote(zone, shpool) != NGX_OK) {
        return NGX_ERROR;
    }

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
    offset_ms = (uint64_t)tp->sec * 1000 + tp->msec - ngx_current_msec;

    mask = (zone->redis ? kAsideRedis : 0)
           | (zone->variable ? kAsideVariables : 0);

    limit_sliding::aside_init(memory, size, mask, &zone->aside);

    zone->remote.told = zone->aside.told;

    zone->zone = limit_sliding::zone_init(memory + zone->aside.bytes,
                                          size - zone->aside.bytes,
                                          &zone->policy, offset_ms, secret);
    if (zone->zone == NULL) {
        return NGX_ERROR;
    }

    shpool->data = zone->zone;

    return NGX_OK;
}

/* Parts of a zone in Redis hold which keys are known to be exhausted, and what
 * was leased of others. */

static ngx_int_t init_remote(ZoneConf *zone, ngx_slab_pool_t *shpool)
{
    void *memory;
    size_t size;

    size = ngx_max(shpool->pfree / 8, 1) * ngx_pagesize;

    memory = ngx_slab_calloc(shpool, size);
    if (memory == NULL) {
        return NGX_ERROR;
    }

    zone->remote.refusals = limit_sliding::refusals_init(memory, size);

    zone->remote.log_after = ngx_slab_calloc(shpool, sizeof(ngx_atomic_t));
    if (zone->remote.log_after == NULL) {
        return NGX_ERROR;
    }

    if (zone->remote.lease) {
        memory = ngx_slab_calloc(shpool, size);
        if (memory == NULL) {
            return NGX_ERROR;
        }

        zone->remote.leases = limit_sliding::leases_init(memory, size);
    }

    return NGX_OK;
}

/* The new configuration is in use from here on. */

extern "C" ngx_int_t ngx_http_limit_sliding_init_module(ngx_cycle_t *cycle)
{
    ngx_uint_t i;
    ZoneConf **zones;
    MainConf *lsmcf;

    lsmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                                ngx_http_limit_sliding_module);
    if (lsmcf == NULL) {
        return NGX_OK;
    }

    zones = lsmcf->zones.elts;

    for (i = 0; i < lsmcf->zones.nelts; i++) {
        if (!zones[i]->top) {
            limit_sliding::top_clear(zones[i]->aside.top);
        }

        if (zones[i]->restarted.len) {
            log_restarted(cycle->log, zones[i]);
        }
    }

    return NGX_OK;
}

/*
 * A notice that logs of the level "error" show as well, which is NGINX's
 * default: all clients have their whole limit again, and an operator who did
 * not mean that would look for the reason there.  It is not itself an error,
 * as the configuration asks for it.
 */

static void log_restarted(ngx_log_t *log, ZoneConf *zone)
{
    ngx_log_t shown;

    shown = *log;

    if (shown.log_level >= NGX_LOG_ERR && shown.log_level < NGX_LOG_NOTICE) {
        shown.log_level = NGX_LOG_NOTICE;
    }

    ngx_log_error(NGX_LOG_NOTICE, &shown, 0,
                  "limit_sliding zone \"%V\" starts empty: %V", &zone->name,
                  &zone->restarted);
}

} // namespace limit_sliding
