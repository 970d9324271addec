/* Copyright (C) the limit_sliding authors */

/* The functions of the border that wait for nothing. */

#include <iterator>

#include "http/directives/directives.hpp"
#include "http/lua/border.hpp"
#include "http/lua/lua_claim.hpp"
#include "http/response/context.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* Texts by the negative of LuaCode. */
constexpr const char *kTexts[] = {
    "",
    "empty key",
    "no limit of the key is known: give \"rate\"",
    "the zone has \"inflight=\": use hold()",
    "the zone has no \"inflight=\": use take()",
    "no memory",
    "redis does not answer",
    "redis did not do it, see the log",
    "the request holds nothing of the key",
    "no room for the key",
};

static_assert(std::size(kTexts) == kLuaCodes, "each code has a text");

LuaZone *create_zone(ZoneConf &conf) {
    auto *zone = create<LuaZone>(ngx_cycle->pool);
    if (zone == nullptr) { return nullptr; }

    const Policy &policy = conf.policy;
    zone->window_ms = static_cast<double>(policy.window_ms);
    zone->burst = policy.burst;
    zone->in_flight = policy.is_in_flight();
    zone->queues = policy.algorithm == Algorithm::kLeakyBucket;
    zone->remote = conf.is_remote();
    zone->asks = conf.is_remote() && conf.remote.sync_ms == 0;

    zone->limit.zone = &conf;
    zone->limit.limit = conf.limit;
    zone->limit.limit_max = conf.limit_max();
    zone->limit.cost = 1;
    prepare_claim(zone->limit);
    zone->is_plain = !zone->remote && !zone->in_flight && !conf.rejected.are_banned()
                     && !zone->queues && !policy.has_rings() && zone->limit.decide != nullptr
                     && policy.calendar == Calendar::kNone;
    return zone;
}

} // namespace
} // namespace limit_sliding

using namespace limit_sliding;

int limit_sliding_lua_version() { return kLuaVersion; }

const char *limit_sliding_lua_text(int code) { return kTexts[-code]; }

const limit_sliding_zone *limit_sliding_lua_zone(const char *name, size_t len, const char **error) {
    /* NGINX's helper processes hold no units, and have no client of Redis. */
    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE) {
        *error = "only worker processes can use zone";
        return nullptr;
    }

    const Zones *zones = begin_process(const_cast<ngx_cycle_t *>(ngx_cycle));
    ZoneConf *conf = zones != nullptr ? find_zone(*zones, {name, len}) : nullptr;
    if (conf == nullptr) {
        *error = "unknown zone";
        return nullptr;
    }

    if (conf->worker.lua == nullptr) { conf->worker.lua = create_zone(*conf); }

    *error = "no memory for zone";
    return conf->worker.lua;
}

bool limit_sliding_lua_rate(const limit_sliding_zone *zone, const char *text, size_t len,
                            limit_sliding_rate *rate) {
    const auto &conf = static_cast<const LuaZone *>(zone)->conf();
    Override own = {};
    if (!own.parse({text, len}, conf.policy, conf.limit_max())) { return false; }

    *rate = {own.limit, own.window.ms, static_cast<unsigned char>(own.window.calendar)};
    return true;
}

int limit_sliding_lua_run(const limit_sliding_zone *zone, int operation, const char *key,
                          size_t len, const limit_sliding_rate *rate, uint64_t units,
                          limit_sliding_verdict *verdict) {
    const auto *lua = static_cast<const LuaZone *>(zone);
    if (operation == kLuaTake && lua->is_plain && len != 0) {
        return take_plainly(*lua, {key, len}, rate, units, verdict);
    }

    if (zone->in_flight && operation != kLuaPeek) { return kLuaHeld; }

    return run_here(zone, operation, {key, len}, rate, units, verdict);
}

void limit_sliding_lua_describe(limit_sliding_verdict *verdict) { describe_plainly(verdict); }
