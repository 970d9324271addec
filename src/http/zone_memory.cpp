/*
 * Copyright (C) the limit_sliding authors
 */

#include <unistd.h>

#include "http/zone_memory.hpp"

#include "http/zone_reuse.hpp"

namespace limit_sliding {

namespace {

/*
 * Takes a part of the memory of a zone in Redis for the keys that are known to
 * be exhausted, and another one for leases if it has any.
 */
bool init_remote(RemoteZone *remote, ngx_slab_pool_t *slab)
{
    size_t size = ngx_max(slab->pfree / 8, 1) * ngx_pagesize;

    auto *memory = ngx_slab_calloc(slab, size);
    if (memory == nullptr) {
        return false;
    }

    remote->refusals = refusals_init(memory, size);

    remote->log_after = static_cast<ngx_atomic_t *>(
        ngx_slab_calloc(slab, sizeof(ngx_atomic_t)));
    if (remote->log_after == nullptr) {
        return false;
    }

    if (remote->lease == 0) {
        return true;
    }

    memory = ngx_slab_calloc(slab, size);
    if (memory == nullptr) {
        return false;
    }

    remote->leases = leases_init(memory, size);
    return true;
}

/* Divides the rest of the memory into the parts beside the table, and that. */
bool init_table(ZoneConf *zone, u_char *memory, size_t size, ngx_log_t *log)
{
    uint8_t secret[kSecretBytes];
    if (getentropy(secret, sizeof(secret)) != 0) {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "getentropy() for limit_sliding zone \"%V\" failed",
                      &zone->name);
        return false;
    }

    auto &aside = zone->memory.aside;
    unsigned mask = (zone->redis != nullptr ? kAsideRedis : 0)
                    | (zone->variable ? kAsideVariables : 0);
    aside_init(memory, size, mask, &aside);
    zone->remote.told = aside.told;

    /* NGINX's clock is monotonic; windows begin with those of UTC */
    auto *now = ngx_timeofday();
    uint64_t offset_ms
        = uint64_t(now->sec) * 1000 + now->msec - ngx_current_msec;

    zone->memory.table = zone_init(memory + aside.bytes, size - aside.bytes,
                                   &zone->policy, offset_ms, secret);
    return zone->memory.table != nullptr;
}

/*
 * NGINX calls this before it is certain that the new configuration will be
 * used: so the memory of a running zone is taken over, and not changed.
 */
ngx_int_t init_memory(ngx_shm_zone_t *shm_zone, void *data)
{
    auto *zone = static_cast<ZoneConf *>(shm_zone->data);
    auto *old = static_cast<ZoneConf *>(data);

    if (old != nullptr) {
        zone->memory = old->memory;
        zone->remote.refusals = old->remote.refusals;
        zone->remote.leases = old->remote.leases;
        zone->remote.told = old->remote.told;
        zone->remote.log_after = old->remote.log_after;
        return NGX_OK;
    }

    auto *slab = reinterpret_cast<ngx_slab_pool_t *>(shm_zone->shm.addr);
    auto *log = shm_zone->shm.log;
    slab->log_nomem = 0;

    if (zone->redis != nullptr && !init_remote(&zone->remote, slab)) {
        return NGX_ERROR;
    }

    size_t size = slab->pfree * ngx_pagesize;
    auto *memory = static_cast<u_char *>(ngx_slab_alloc(slab, size));
    if (memory == nullptr) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "limit_sliding zone \"%V\" is too small", &zone->name);
        return NGX_ERROR;
    }

#if (NGX_DEBUG_MALLOC)
    /* else pages come zeroed, and are not in memory until they are used */
    ngx_memzero(memory, size);
#endif

    if (!init_table(zone, memory, size, log)) {
        return NGX_ERROR;
    }

    slab->data = zone->memory.table;
    return NGX_OK;
}

} // namespace

ngx_int_t add_zone_memory(ngx_conf_t *cf, ZoneConf *zone)
{
    zone->shm_zone
        = ngx_shared_memory_add(cf, &zone->name, zone->size, first_zone_tag());
    if (zone->shm_zone == nullptr) {
        return NGX_ERROR;
    }

    zone->shm_zone->init = init_memory;
    zone->shm_zone->data = zone;
    return NGX_OK;
}

/*
 * Workers, those of the last cycle too, have slots of their own in NGINX's
 * table of processes, and so counters of their own, until there are more
 * workers than counters.
 */
void take_counters(const Zones &zones)
{
    for (auto *zone : zones) {
        auto &aside = zone->memory.aside;
        zone->worker.counters
            = &aside.counters[ngx_process_slot % aside.ncounters];
    }
}

} // namespace limit_sliding
