/* Copyright (C) the limit_sliding authors */

#include "http/lua/lua_claim.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "core/limiter/limiter.hpp"
#include "core/table/zone.hpp"
#include "http/overrides/find_override.hpp"
#include "http/request/penalties.hpp"
#include "http/request/remote_claims.hpp"
#include "http/request/sync_claims.hpp"
#include "http/response/context.hpp"
#include "ngx/strings.hpp"
#include "redis/sync/sync.hpp"

namespace limit_sliding {
namespace {

/* Converts a time or a limit; kNever and kLimitOff become infinite. */
double number_of(uint64_t n) {
    return n == kNever ? HUGE_VAL : static_cast<double>(static_cast<int64_t>(n));
}

/* Finds the override of the key in this node's memory, and the limit of a key without one: that of
 * the caller, else the limit that a variable set in the last request. */
void find_limits(LuaCall &call) {
    const ZoneConf &zone = *call.zone;
    const uint64_t hash = call.claim.hash;
    if (!zone.is_remote() && find_override(zone, hash, &call.own)) { return; }

    OverrideCache &variable_overrides = *zone.memory.aside.variable_overrides;
    if (!zone.variable) { return; }

    if (call.usual.is_set()) {
        variable_overrides.set(hash, call.usual);
    } else if (zone.limit == 0) {
        call.usual = variable_overrides.find(hash);
    }
}

/* Adds the rejection to the offenders of the zone, to the rejections counted towards a ban, and to
 * the history of the key, if the zone has these. */
[[gnu::noinline]] void record(ZoneConf &zone, const ngx_str_t &key, Claim &claim, Verdict &ban) {
    const uint32_t n = zone.rejected.are_watched ? zone.worker.sampler.weight(ngx_current_msec) : 0;
    if (n != 0) { add_rejections(key, claim, n, ban); }

    record_rejection(claim, ngx_current_msec);
}

/* Counts a decided claim as the handler of requests does. */
void account(LuaCall &call) {
    ZoneConf &zone = *call.zone;
    Claim &claim = call.claim;
    const bool admitted = is_admitted(claim);
    count_source(zone, claim);
    if (kHasRedis) { tell_synced({&claim, 1}, admitted); }

    if (!admitted) {
        count_request(zone, kCountRejected);
        record(zone, call.key, claim, call.room.verdict);
        return;
    }

    const bool is_unlimited = claim.standing == Standing::kUnlimited;
    const bool waits = call.lua->queues && claim.delay_ms(ngx_current_msec) != 0;
    count_request(zone, is_unlimited ? kCountUnlimited : waits ? kCountDelayed : kCountPassed);
}

/* Writes the numbers of a decided claim. */
void write_numbers(const Claim &claim, uint64_t now_ms, limit_sliding_verdict *verdict) {
    const Verdict described = claim.describe(now_ms);
    verdict->limit_number = number_of(described.limit);
    verdict->remaining_number = number_of(described.remaining);
    verdict->reset_number = number_of(described.reset_ms);
    verdict->retry_after_number = verdict->admitted ? 0 : number_of(described.retry_after_ms);
    verdict->delay_number = 0;
    verdict->window_ms = static_cast<double>(claim.policy->window_ms);
    verdict->is_late = false;
}

/* Admits a key without a limit. */
void admit_unlimited(const LuaCall &call, limit_sliding_verdict *verdict) {
    if (call.operation == kLuaTake) { count_request(*call.zone, kCountUnlimited); }

    *verdict = {};
    verdict->admitted = true;
    verdict->limit_number = HUGE_VAL;
    verdict->remaining_number = HUGE_VAL;
}

/* Counts a decided claim, unless the call only peeks, and describes the claim. */
void conclude(LuaCall &call, limit_sliding_verdict *verdict) {
    const Claim &claim = call.claim;
    if (call.operation == kLuaTake) { account(call); }

    verdict->admitted = is_admitted(claim);
    verdict->source_number = 0;
    write_numbers(claim, ngx_current_msec, verdict);
    if (call.lua->queues && verdict->admitted) {
        verdict->delay_number = number_of(claim.delay_ms(ngx_current_msec));
    }

    if (claim.remote == nullptr) { return; }

    verdict->source_number = static_cast<unsigned char>(index_of(remote_of(claim).source));
    if (claim.standing == Standing::kUnlimited) {
        verdict->limit_number = HUGE_VAL;
        verdict->remaining_number = HUGE_VAL;
    }
}

} // namespace

void begin_call(LuaCall &call, const limit_sliding_zone *zone, int operation, std::string_view key,
                const limit_sliding_rate *rate, uint64_t units) {
    call.lua = static_cast<const LuaZone *>(zone);
    call.zone = &call.lua->conf();
    call.operation = static_cast<LuaOperation>(operation);
    call.key = to_str(key);
    call.units = operation == kLuaGiveBack ? -static_cast<int64_t>(units) : units;
    call.own = {};
    call.usual = {};
    if (rate != nullptr) {
        call.usual = {rate->limit, {rate->window_ms, static_cast<Calendar>(rate->calendar)}};
    }
}

bool make_claim(LuaCall &call, limit_sliding_verdict *verdict, LuaCode *code) {
    *code = kLuaEmptyKey;
    if (call.key.len == 0) { return false; }

    /* The decision sets the other fields. */
    ZoneConf &zone = *call.zone;
    Claim &claim = call.claim;
    std::memcpy(&claim, &call.lua->limit.claim, offsetof(Claim, outcome));
    claim.hash = claim.zone->hash(view(call.key));
    claim.cost = std::min<uint64_t>(call.units, kRemoteMax + 1);
    if (call.operation != kLuaTake) {
        claim.purpose = Purpose::kLook;
        claim.records = false;
    }

    find_limits(call);
    const Override &limit = call.limit();
    if (call.operation != kLuaForget) {
        const bool is_unlimited = terms_of(limit) == Terms::kUnlimited;
        *code = is_unlimited ? kLuaDone : kLuaNoRate;
        if (is_unlimited) {
            admit_unlimited(call, verdict);
            return false;
        }

        if (!limit.is_set() && claim.limit == 0) { return false; }

        if (limit.is_set()) { call.set_limit(limit); }
    }

    if (!call.usual.is_set()) { call.usual.limit = zone.limit; }

    if (kHasRedis && zone.is_remote()) {
        complete_remote(claim, zone, call.key, call.remote);
    } else {
        claim.fit_core();
    }

    return true;
}

bool decide_by_ban(LuaCall &call) {
    return call.zone->rejected.are_banned() && find_ban(call.key, call.claim, call.room);
}

Progress change(LuaCall &call) {
    if (call.operation == kLuaForget) { return forget(call); }

    const Claim &claim = call.claim;
    if (claim.remote != nullptr) {
        call.own = remote_of(claim).zone->last_overrides->find(claim.key_hash());
    }

    if (!claim.is_here() || !has_number(call.limit())) { return Progress::kDone; }

    if (!kHasRedis || !is_synced(claim)) { return charge(call); }

    uint64_t lost;
    const bool has_room = settle_here(claim, call.units, &lost);
    sync_redis(claim, call.units - static_cast<int64_t>(lost));
    return has_room ? Progress::kDone : Progress::kNoRoom;
}

LuaCode end_call(LuaCall &call, Progress progress, limit_sliding_verdict *verdict) {
    switch (progress) {
    case Progress::kDone:
        if (call.decides()) { conclude(call, verdict); }
        return kLuaDone;
    case Progress::kWaits:
        return kLuaWaits;
    case Progress::kNoRoom:
        return kLuaNoRoom;
    case Progress::kRefused:
        return kLuaRefused;
    default:
        return kLuaAway;
    }
}

LuaCode run_here(LuaCall &call, limit_sliding_verdict *verdict, Hold *hold) {
    LuaCode code;
    if (!make_claim(call, verdict, &code)) { return code; }

    if (!call.decides()) { return end_call(call, change(call), verdict); }

    call.claim.hold = hold;
    if (!decide_by_ban(call)) { acquire(&call.claim, 1, ngx_current_msec); }

    return end_call(call, Progress::kDone, verdict);
}

[[gnu::noinline]] LuaCode run_here(const limit_sliding_zone *zone, int operation,
                                   std::string_view key, const limit_sliding_rate *rate,
                                   uint64_t units, limit_sliding_verdict *verdict) {
    LuaCall call;
    begin_call(call, zone, operation, key, rate, units);
    return run_here(call, verdict);
}

LuaCode take_plainly(const LuaZone &zone, std::string_view key, const limit_sliding_rate *rate,
                     uint64_t units, limit_sliding_verdict *verdict) {
    const ZoneConf &conf = zone.conf();
    const Limit &limit = zone.limit;
    if ((rate != nullptr && (rate->limit > kLimitMax || rate->window_ms != 0 || conf.variable))
        || conf.memory.aside.overrides->count() != 0
        || (limit.claim.debts != nullptr && limit.claim.debts->has_any())) {
        return run_here(&zone, kLuaTake, key, rate, units, verdict);
    }

    /* The decision sets the other fields. */
    Claim claim;
    std::memcpy(&claim, &limit.claim, offsetof(Claim, outcome));
    claim.hash = claim.zone->hash(key);
    claim.cost = std::min(units, kCostMax);
    auto *decide = limit.decide;
    if (rate != nullptr && rate->limit != claim.limit) {
        claim.limit = rate->limit;
        claim.is_own = true;
        decide = consume_by_history(*claim.policy, claim.limit);
    }

    decide(&claim, ngx_current_msec);

    if (!is_admitted(claim) && (conf.rejected.are_watched || claim.records)) {
        Verdict none; /* the zone has no bans */
        record(zone.conf(), to_str(key), claim, none);
    }

    verdict->admitted = is_admitted(claim);
    verdict->is_late = true;
    verdict->source_number = 0;
    verdict->outcome = static_cast<unsigned char>(claim.outcome);
    verdict->zone = &zone;
    verdict->limit_of_claim = claim.limit;
    verdict->cost = claim.cost;
    verdict->state = claim.state;
    verdict->now_ms = ngx_current_msec;
    count_request(conf, verdict->admitted ? kCountPassed : kCountRejected);
    return kLuaDone;
}

void describe_plainly(limit_sliding_verdict *verdict) {
    const Limit &limit = static_cast<const LuaZone *>(verdict->zone)->limit;
    Claim claim;
    std::memcpy(&claim, &limit.claim, offsetof(Claim, outcome));
    claim.limit = verdict->limit_of_claim;
    claim.cost = verdict->cost;
    claim.outcome = static_cast<Outcome>(verdict->outcome);
    claim.state = verdict->state;
    write_numbers(claim, verdict->now_ms, verdict);
}

} // namespace limit_sliding
