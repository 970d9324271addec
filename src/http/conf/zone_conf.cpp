/* Copyright (C) the limit_sliding authors */

#include "http/conf/zone_conf.hpp"

#include <unistd.h>

#include "core/table/zone.hpp"
#include "http/module.h"
#include "ngx/containers.hpp"
#include "ngx/memory.hpp"
#include "ngx/seats.hpp"
#include "ngx/strings.hpp"
#include "redis/shared/ban_exchange.hpp"
#include "redis/shared/leases.hpp"
#include "redis/shared/outbox.hpp"
#include "redis/shared/refusals.hpp"

namespace limit_sliding {
namespace {

/* NGINX keeps the memory of a zone in the next cycle if name, size and tag are the same.  A zone
 * has one of two tags: the tag of the last cycle if the memory is kept, else the other one. */
char tags[2];

/* Returns the pages for the separate parts, which the zone's size does not include. */
size_t own_pages_of(const ZoneConf &zone) {
    return ngx_align(ZoneMemory::separate_bytes(zone.override_file.max), ngx_pagesize)
           / ngx_pagesize;
}

/* Returns the bytes of a page, with the header that NGINX's slab has for it. */
size_t page_bytes() { return ngx_pagesize + sizeof(ngx_slab_page_t); }

/* Allocates, and leaves unused, pages that only rounding has added, so that limits_max does not
 * change the number of slots.  Returns false if the memory is too small. */
bool fit_pages(const ZoneConf &zone, ngx_slab_pool_t *slab) {
    const size_t head = reinterpret_cast<u_char *>(slab->pages) - reinterpret_cast<u_char *>(slab);
    const size_t pages
        = own_pages_of(zone) + (ngx_align(zone.size, ngx_pagesize) - head) / page_bytes();
    return slab->pfree == pages
           || (slab->pfree > pages
               && ngx_slab_alloc(slab, (slab->pfree - pages) * ngx_pagesize) != nullptr);
}

/* Takes 1/8 of the free memory for refusals, and 1/8 for leases or, with sync=, the outbox.  Takes
 * 1/32 of the rest, at most 64 pages, for bans to send to other nodes. */
bool init_remote(ZoneConf &zone, ngx_slab_pool_t *slab) {
    auto &remote = zone.remote;
    size_t size = ngx_max(slab->pfree / 8, 1) * ngx_pagesize;
    void *refusals = ngx_slab_calloc(slab, size);
    void *log_after = ngx_slab_calloc(slab, sizeof(ngx_atomic_t));
    if (refusals == nullptr || log_after == nullptr) { return false; }

    remote.refusals = Refusals::init(refusals, size);
    remote.log_after = static_cast<ngx_atomic_t *>(log_after);

    if (remote.lease != 0 || remote.sync_ms != 0) {
        void *more = ngx_slab_calloc(slab, size);
        if (more == nullptr) { return false; }

        if (remote.sync_ms != 0) {
            remote.outbox = Outbox::init(more, size);
        } else {
            remote.leases = Leases::init(more, size);
        }
    }

    if (!zone.rejected.are_banned()) { return true; }

    size = ngx_min(ngx_max(slab->pfree / 32, 1), 64) * ngx_pagesize;
    void *bans = ngx_slab_calloc(slab, size);
    remote.exchange = bans != nullptr ? BanExchange::init(bans, size) : nullptr;
    return bans != nullptr;
}

/* Returns the ms by which UTC is ahead of NGINX's monotonic clock. */
uint64_t utc_offset_ms() {
    const auto &now = *ngx_timeofday();
    return uint64_t(now.sec) * 1000 + now.msec - ngx_current_msec;
}

/* Moves the windows of "fixed" if UTC has made a step since the last reload.  A key keeps its
 * window if this is the next one now (fixed_window.hpp). */
void follow_utc(ngx_log_t &log, const ZoneConf &zone) {
    constexpr int64_t kStepMs = 1000; /* smaller steps are ignored */
    if (zone.policy.algorithm != Algorithm::kFixed) { return; }

    auto &offset_ms = shared(&zone.memory.table->offset_ms);
    const uint64_t present_ms = utc_offset_ms();
    const auto step_ms = static_cast<int64_t>(present_ms - offset_ms.load());
    if (std::abs(step_ms) < kStepMs) { return; }

    offset_ms.store(present_ms);
    ngx_log_error(NGX_LOG_NOTICE, &log, 0,
                  "limit_sliding zone \"%V\": the clock was set by %L s, and its windows follow",
                  &zone.name, step_ms / 1000);
}

/* Divides the memory into ZoneMemory and the table of keys. */
bool init_table(ZoneConf &zone, u_char *memory, size_t size, const uint8_t *secret) {
    auto &aside = zone.memory.aside;
    unsigned mask = (zone.is_remote() ? ZoneMemory::kRedis : 0)
                    | (zone.variable ? ZoneMemory::kVariables : 0)
                    | (zone.rejected.are_banned() ? ZoneMemory::kBans : 0)
                    | (zone.may_owe ? ZoneMemory::kDebts : 0)
                    | (zone.policy.is_in_flight() ? ZoneMemory::kLedger : 0);
    aside.init(memory, size, mask, zone.override_file.max, secret);
    if (aside.bytes > size) { return false; }

    zone.remote.last_overrides = aside.redis_overrides;
    zone.remote.bans = aside.bans;

    zone.memory.table = Zone::init(memory + aside.bytes, size - aside.bytes, zone.policy,
                                   utc_offset_ms(), secret);
    return zone.memory.table != nullptr;
}

/* Divides the memory of a new zone.  Returns false if the memory is too small. */
bool divide_memory(ZoneConf &zone, ngx_slab_pool_t *slab, const uint8_t *secret) {
    const size_t own_pages = own_pages_of(zone);
    if (!fit_pages(zone, slab) || (zone.is_remote() && !init_remote(zone, slab))
        || slab->pfree <= own_pages) {
        return false;
    }

    const size_t pages = slab->pfree;
    auto *memory = static_cast<u_char *>(ngx_slab_alloc(slab, pages * ngx_pagesize));
    if (memory == nullptr) { return false; }

#if (NGX_DEBUG_MALLOC)
    /* Without NGX_DEBUG_MALLOC, pages are zeroed, and take no memory until they are used. */
    ngx_memzero(memory, pages * ngx_pagesize);
#endif

    /* The rest of the last page of separate parts stays unused. */
    return init_table(zone, memory,
                      (pages - own_pages) * ngx_pagesize
                          + ZoneMemory::separate_bytes(zone.override_file.max),
                      secret);
}

/* Takes over the memory of a running zone without changes, or divides new memory.  NGINX calls
 * the function before it is certain that the new configuration will be used. */
ngx_int_t init_memory(ngx_shm_zone_t *shm_zone, void *data) {
    auto &zone = *static_cast<ZoneConf *>(shm_zone->data);
    if (auto *old = static_cast<ZoneConf *>(data)) {
        zone.memory = old->memory;
        static_cast<RemoteMemory &>(zone.remote) = old->remote;
        return NGX_OK;
    }

    auto *slab = reinterpret_cast<ngx_slab_pool_t *>(shm_zone->shm.addr);
    auto *log = shm_zone->shm.log;
    if (slab->addr != slab || slab->end != shm_zone->shm.addr + shm_zone->shm.size) {
        ngx_log_error(NGX_LOG_EMERG, log, 0, NGX_HTTP_LIMIT_SLIDING_OTHER, "ngx_slab_pool_t");
        return NGX_ERROR;
    }

    slab->log_nomem = 0;

    uint8_t secret[kSecretBytes];
    if (getentropy(secret, sizeof(secret)) != 0) {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "getentropy() for limit_sliding zone \"%V\" failed", &zone.name);
        return NGX_ERROR;
    }

    if (!divide_memory(zone, slab, secret)) {
        ngx_log_error(NGX_LOG_EMERG, log, 0, "limit_sliding zone \"%V\" is too small", &zone.name);
        return NGX_ERROR;
    }

    slab->data = zone.memory.table;
    return NGX_OK;
}

/* Returns true if the last cycle had loaded this module from another file.  The tags of its zones
 * are unknown here, and its structs may differ. */
bool was_other_file(const ngx_cycle_t &old) {
    const auto *name = ngx_http_limit_sliding_module.name;
    for (auto **module = old.modules; module != nullptr && *module != nullptr; module++) {
        if (*module != &ngx_http_limit_sliding_module
            && std::string_view((*module)->name) == name) {
            return true;
        }
    }

    return false;
}

/* Returns the memory of this name in a cycle, of any module, or nullptr. */
ngx_shm_zone_t *find_memory(ngx_cycle_t &cycle, std::string_view name) {
    ngx_shm_zone_t *found = nullptr;
    for_each<ngx_shm_zone_t>(cycle.shared_memory, [&](auto &shm_zone) {
        found = view(shm_zone.shm.name) == name ? &shm_zone : found;
    });
    return found;
}

/* Decides whether the zone keeps the memory of the last cycle, and sets `restarted` if not.
 * Returns the tag that makes NGINX do so, or nullptr if there is no memory for the text. */
char *reuse_memory(ngx_conf_t *cf, ZoneConf &zone) {
    auto *shm_zone = find_memory(*cf->cycle->old_cycle, view(zone.name));
    if (shm_zone == nullptr) { return &tags[0]; }

    const bool is_first = shm_zone->tag == &tags[0];
    if (!is_first && shm_zone->tag != &tags[1]) {
        if (was_other_file(*cf->cycle->old_cycle)) {
            ngx_str_set(&zone.restarted, "its module was loaded from another file");
        }

        return &tags[0];
    }

    const auto &old = *static_cast<ZoneConf *>(shm_zone->data);
    size_t size = sizeof("its window was  ms, now  ms") + 4 * NGX_INT64_LEN
                  + zone.key.complex.value.len + old.key.complex.value.len;

    auto *text = alloc_bytes(cf->pool, size);
    if (text == nullptr) { return nullptr; }

    auto *end = print_difference(text, text + size, zone, old);
    zone.former = &old;
    zone.restarted = {static_cast<size_t>(end - text), text};

    const bool keeps = (end == text);
    return &tags[is_first == keeps ? 0 : 1];
}

/* Requests the zone's memory.  If another module uses the name, the error names that module. */
bool order_memory(ngx_conf_t *cf, ZoneConf &zone) {
    if (const auto *other = find_memory(*cf->cycle, view(zone.name))) {
        const char *user = "another module";
        for (auto **module = cf->cycle->modules; *module != nullptr; module++) {
            if (*module == other->tag) { user = (*module)->name; }
        }

        return other->shm.size != 0
                   ? invalid_at(cf, zone.where,
                                "the name of the zone \"%V\" is that of a zone of %s in %s:%ui",
                                &zone.name, user)
                   : invalid_at(cf, zone.where,
                                "the zone \"%V\" is used by %s, did you mean "
                                "\"limit_sliding zone=%V\" there? in %s:%ui",
                                &zone.name, user, &zone.name);
    }

    const size_t size = ngx_align(zone.size, ngx_pagesize) + own_pages_of(zone) * page_bytes();
    auto *tag = reuse_memory(cf, zone);
    auto *shm_zone = tag != nullptr
                         ? ngx_shared_memory_add(cf, &zone.name, ngx_align(size, ngx_pagesize), tag)
                         : nullptr;
    if (shm_zone == nullptr) { return false; }

    shm_zone->init = init_memory;
    shm_zone->data = &zone;
    return true;
}

/* Returns a log for notices, which the configuration demands.  Logs of the level "error", NGINX's
 * default, show them as well: an operator may look for the reason there. */
ngx_log_t shown_log(const ngx_log_t &log) {
    ngx_log_t shown = log;
    if (shown.log_level >= NGX_LOG_ERR && shown.log_level < NGX_LOG_NOTICE) {
        shown.log_level = NGX_LOG_NOTICE;
    }

    return shown;
}

} // namespace

const ngx_str_t algorithm_names[kAlgorithms]
    = {ngx_string("counter"),      ngx_string("log"),          ngx_string("fixed"),
       ngx_string("token_bucket"), ngx_string("leaky_bucket"), ngx_string("inflight")};

ZoneConf *find_zone(const Zones &zones, std::string_view name) {
    for (auto *zone : zones) {
        if (view(zone->name) == name) { return zone; }
    }

    return nullptr;
}

ZoneConf *get_zone(ngx_conf_t *cf, Zones &zones, const ngx_str_t &name) {
    auto *zone = find_zone(zones, view(name));
    if (zone != nullptr) { return zone; }

    zone = create<ZoneConf>(cf->pool);
    if (zone == nullptr || zones.add(cf->pool, zone) == nullptr) { return nullptr; }

    zone->name = name;
    zone->where = file_line_of(cf);
    return zone;
}

bool init_zones(ngx_conf_t *cf, const Zones &zones) {
    for (auto *zone : zones) {
        if (zone->size == 0) {
            return invalid_at(cf, zone->where, "unknown limit_sliding zone \"%V\" in %s:%ui",
                              &zone->name);
        }

        if (zone->policy.is_in_flight() && !open_seats(cf->log)) { return false; }

        if (!order_memory(cf, *zone)) { return false; }
    }

    return true;
}

void enter_memory(ngx_log_t *log, const ZoneConf &zone) {
    if (!zone.rejected.top) { zone.memory.aside.offenders->clear(); }

    ngx_log_t shown = shown_log(*log);
    tell_changes(shown, zone);
    follow_utc(shown, zone);
}

void tell_gone_zones(ngx_cycle_t &cycle, const Zones &zones) {
    ngx_log_t shown = shown_log(*cycle.log);
    for_each<ngx_shm_zone_t>(cycle.old_cycle->shared_memory, [&](auto &shm_zone) {
        if (shm_zone.tag != &tags[0] && shm_zone.tag != &tags[1]) { return; }

        const auto &old = *static_cast<ZoneConf *>(shm_zone.data);
        const bool has_limits = old.is_remote() || old.memory.aside.overrides->count() != 0;
        if (has_limits && find_zone(zones, view(old.name)) == nullptr) {
            ngx_log_error(
                NGX_LOG_NOTICE, &shown, 0,
                "limit_sliding zone \"%V\" is gone, and with it the limits of single keys",
                &old.name);
        }
    });
}

/* Each worker, also of the last cycle, has its own slot in NGINX's process table, and thus its
 * own counters, unless there are more workers than counters. */
void take_statistics(ZoneConf &zone) {
    const auto &aside = zone.memory.aside;
    zone.worker.counters = &aside.counters[ngx_process_slot % aside.nstatistics];
    zone.worker.sampler.takes_all = zone.rejected.are_banned();
}

} // namespace limit_sliding
