/* Copyright (C) the limit_sliding authors */

#include "http/lua/lua_hold.hpp"

#include "core/table/zone.hpp"
#include "ngx/memory.hpp"
#include "redis/shares/claim_units.hpp"

namespace limit_sliding {
namespace {

using HoldList = List<limit_sliding_hold, &limit_sliding_hold::link>;

void unlist(limit_sliding_hold &hold) {
    if (hold.is_listed) { HoldList::remove(hold); }

    hold.is_listed = false;
}

/* Gives back the units at the end of the request. */
void end_holds(void *data) {
    auto &holds = *static_cast<HoldList *>(data);
    while (!holds.empty()) {
        limit_sliding_hold &hold = holds.front();
        hold.is_dropped ? destroy_hold(hold) : limit_sliding_lua_release(&hold);
    }
}

/* Returns the holds of a request, or nullptr if there are none. */
HoldList *find_holds(const ngx_pool_t *pool) {
    for (auto *cleanup = pool->cleanup; cleanup != nullptr; cleanup = cleanup->next) {
        if (cleanup->handler == end_holds) { return static_cast<HoldList *>(cleanup->data); }
    }

    return nullptr;
}

/* Returns the holds of a request; nullptr: there is no memory. */
HoldList *get_holds(ngx_pool_t *pool) {
    if (HoldList *found = find_holds(pool); found != nullptr) { return found; }

    auto *cleanup = ngx_pool_cleanup_add(pool, sizeof(HoldList));
    if (cleanup == nullptr) { return nullptr; }

    auto *holds = new (cleanup->data) HoldList();
    holds->init();
    cleanup->handler = end_holds;
    return holds;
}

} // namespace

limit_sliding_hold *create_hold(const LuaCall &call, ngx_http_request_t *r) {
    HoldList *holds = r != nullptr ? get_holds(r->pool) : nullptr;
    if (r != nullptr && holds == nullptr) { return nullptr; }

    auto *hold = create_on_heap<limit_sliding_hold>();
    if (hold == nullptr) { return nullptr; }

    hold->hash = call.zone->memory.table->hash(view(call.key));
    hold->units.holdings = &call.zone->worker.holdings;
    if (holds != nullptr) {
        holds->push_front(*hold);
        hold->is_listed = true;
    }
    return hold;
}

void destroy_hold(limit_sliding_hold &hold) {
    limit_sliding_lua_release(&hold);
    if (hold.remote != nullptr) { destroy_on_heap(hold.remote); }

    destroy_on_heap(&hold);
}

} // namespace limit_sliding

using namespace limit_sliding;

int limit_sliding_lua_hold(const limit_sliding_zone *zone, void *request, const char *key,
                           size_t len, const limit_sliding_rate *rate, uint64_t units,
                           limit_sliding_verdict *verdict, limit_sliding_hold **hold) {
    if (!zone->in_flight) { return kLuaNotHeld; }

    LuaCall call;
    begin_call(call, zone, kLuaTake, {key, len}, rate, units);
    limit_sliding_hold *created = create_hold(call, static_cast<ngx_http_request_t *>(request));
    if (created == nullptr) { return kLuaNoMemory; }

    const LuaCode code = run_here(call, verdict, &created->units);
    if (code != kLuaDone || !verdict->admitted) {
        destroy_hold(*created);
        return code;
    }

    *hold = created;
    return kLuaDone;
}

void limit_sliding_lua_release(limit_sliding_hold *hold) {
    if (hold->wait != nullptr) { hold->leave(*hold); }

    hold->units.release();
    if (kHasRedis && hold->remote != nullptr) { release_units(*hold->remote); }

    unlist(*hold);
}

/* The request gives back the units of a listed hold. */
void limit_sliding_lua_drop(limit_sliding_hold *hold) {
    hold->is_dropped = true;
    if (!hold->is_listed) { destroy_hold(*hold); }
}

int limit_sliding_lua_leave(const limit_sliding_zone *zone, void *request, const char *key,
                            size_t len) {
    const auto &conf = static_cast<const LuaZone *>(zone)->conf();
    auto *r = static_cast<ngx_http_request_t *>(request);
    HoldList *holds = r != nullptr ? find_holds(r->pool) : nullptr;
    if (holds == nullptr) { return kLuaNoHold; }

    const uint64_t hash = conf.memory.table->hash({key, len});
    for (limit_sliding_hold &hold : *holds) {
        if (hold.wait == nullptr && hold.hash == hash
            && hold.units.holdings == &conf.worker.holdings) {
            hold.is_dropped ? destroy_hold(hold) : limit_sliding_lua_release(&hold);
            return kLuaDone;
        }
    }

    return kLuaNoHold;
}
