/* Copyright (C) the limit_sliding authors */

#include "http/lua/lua_claim.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "core/limiter/limiter.hpp"
#include "core/table/zone.hpp"
#include "http/keys/key_operations.hpp"
#include "http/request/penalties.hpp"
#include "http/request/remote_claims.hpp"
#include "http/request/sync_claims.hpp"
#include "http/response/context.hpp"
#include "ngx/strings.hpp"
#include "redis/sync/sync.hpp"

namespace limit_sliding {
namespace {

/* Converts a time or a limit; kNever and kUnlimited become infinite. */
double number_of(uint64_t n) {
    return n == kNever ? HUGE_VAL : static_cast<double>(static_cast<int64_t>(n));
}

/* Finds the limit that replaces the limit of the zone: the override of the key in this node's
 * memory, else the limit of the caller, else the limit that a variable set in the last request. */
Override find_own(const LuaCall &call, const Claim &claim) {
    const ZoneConf &zone = call.zone->conf();
    OverrideCache &variable_overrides = *zone.memory.aside.variable_overrides;
    Override own = {};
    if (!zone.is_remote() && find_override(zone, claim.hash, &own)) { return own; }

    if (call.rate.is_set()) {
        if (zone.variable) { variable_overrides.set(claim.hash, call.rate); }

        return call.rate;
    }

    return claim.limit == 0 && zone.variable ? variable_overrides.find(claim.hash) : own;
}

/* Adds the rejection to the offenders of the zone, to the rejections counted towards a ban, and to
 * the history of the key, if the zone has these. */
[[gnu::noinline]] void record(const LuaCall &call, Claim &claim, Verdict &ban) {
    ZoneConf &zone = call.zone->conf();
    const uint32_t n = zone.rejected.are_watched ? zone.worker.sampler.weight(ngx_current_msec) : 0;
    if (n != 0) { add_rejections(call.key, claim, n, ban); }

    record_rejection(claim, ngx_current_msec);
}

/* Counts a decided claim as the handler of requests does. */
void account(const LuaCall &call, Claim &claim, LuaClaim &memory) {
    const ZoneConf &zone = call.zone->conf();
    const bool admitted = is_admitted(claim);
    count_source(zone, claim);
    if (kHasRedis) { tell_synced({&claim, 1}, admitted); }

    if (!admitted) {
        count_request(zone, kCountRejected);
        record(call, claim, memory.ban);
        return;
    }

    const bool is_unlimited = claim.standing == Standing::kUnlimited;
    const bool waits = call.zone->queues && claim.delay_ms(ngx_current_msec) != 0;
    count_request(zone, is_unlimited ? kCountUnlimited : waits ? kCountDelayed : kCountPassed);
}

/* Writes the numbers of a decided claim. */
void write_numbers(const Claim &claim, uint64_t now_ms, limit_sliding_verdict *verdict) {
    const Verdict told = claim.describe(now_ms);
    verdict->limit_number = number_of(told.limit);
    verdict->remaining_number = number_of(told.remaining);
    verdict->reset_number = number_of(told.reset_ms);
    verdict->retry_after_number = verdict->admitted ? 0 : number_of(told.retry_after_ms);
    verdict->delay_number = 0;
    verdict->window_ms = static_cast<double>(claim.policy->window_ms);
    verdict->is_late = false;
}

/* Admits a key without a limit. */
void admit_unlimited(const LuaCall &call, limit_sliding_verdict *verdict) {
    if (call.operation == kLuaTake) { count_request(call.zone->conf(), kCountUnlimited); }

    *verdict = {};
    verdict->admitted = true;
    verdict->limit_number = HUGE_VAL;
    verdict->remaining_number = HUGE_VAL;
}

} // namespace

LuaCode make_claim(const LuaCall &call, Claim &claim, LuaClaim &memory) {
    const Limit &limit = call.zone->limit;
    ZoneConf &zone = *limit.zone;
    memory.is_unlimited = false;
    if (call.key.len == 0) { return kLuaEmptyKey; }

    /* The decision sets the other fields. */
    std::memcpy(&claim, &limit.claim, offsetof(Claim, outcome));
    claim.hash = claim.zone->hash(view(call.key));
    claim.cost = std::min(call.units, kRemoteMax + 1);
    if (call.operation != kLuaTake) {
        claim.purpose = Purpose::kLook;
        claim.records = false;
    }

    Override own = {};
    if (call.operation == kLuaForget) {
        claim.limit = zone.any_limit();
    } else {
        own = find_own(call, claim);
    }

    memory.is_unlimited = own.is_unlimited();
    if (memory.is_unlimited) { return kLuaDone; }

    if (own.is_set()) {
        apply_override(zone, own, claim, memory.parts);
    } else if (claim.limit == 0) {
        return kLuaNoRate;
    }

    if (kHasRedis && zone.is_remote()) {
        complete_remote(claim, zone, call.key, memory.remote);
    } else {
        claim.fit_core();
    }

    return kLuaDone;
}

bool begin_claim(const LuaCall &call, Claim &claim, LuaClaim &memory,
                 limit_sliding_verdict *verdict, LuaCode *code) {
    *code = make_claim(call, claim, memory);
    if (*code != kLuaDone) { return false; }

    if (memory.is_unlimited) { admit_unlimited(call, verdict); }

    return !memory.is_unlimited;
}

bool decide_by_ban(const LuaCall &call, Claim &claim, LuaClaim &memory) {
    return call.zone->conf().rejected.are_banned()
           && find_ban(call.key, claim, memory.parts, memory.ban);
}

void conclude(const LuaCall &call, Claim &claim, LuaClaim &memory, limit_sliding_verdict *verdict) {
    if (call.operation == kLuaTake) { account(call, claim, memory); }

    verdict->admitted = is_admitted(claim);
    verdict->source_number = 0;
    write_numbers(claim, ngx_current_msec, verdict);
    if (call.zone->queues && verdict->admitted) {
        verdict->delay_number = number_of(claim.delay_ms(ngx_current_msec));
    }

    if (claim.remote == nullptr) { return; }

    verdict->source_number = static_cast<unsigned char>(index_of(remote_of(claim).source));
    if (claim.standing == Standing::kUnlimited) {
        verdict->limit_number = HUGE_VAL;
        verdict->remaining_number = HUGE_VAL;
    }
}

bool settle_here(const LuaCall &call, const Claim &claim) {
    /* A blocked key counts nothing. */
    if (!claim.is_here()) { return true; }

    const bool is_charge = call.operation == kLuaCharge;
    uint64_t units = call.units;
    bool has_room = true;
    if (is_charge) {
        uint64_t lost;
        has_room = charge(claim, units, ngx_current_msec, &lost);
        units -= lost;
    } else {
        give_back(claim, units, ngx_current_msec);
    }

    if (kHasRedis && claim.remote != nullptr && is_synced(claim)) {
        sync_redis(claim, is_charge ? static_cast<int64_t>(units) : -static_cast<int64_t>(units));
    }

    return has_room;
}

void forget_key(const LuaCall &call, Claim claim, LuaClaim &memory) {
    const ZoneConf &zone = call.zone->conf();
    const Window own = zone.is_remote()
                           ? zone.memory.aside.redis_overrides->find(claim.key_hash()).window
                           : find_own(call, claim).window;
    forget_windows(zone, claim, memory.parts, {{}, call.rate.window, own}, NGX_HTTP_DELETE);
}

LuaCode run_here(const LuaCall &call, limit_sliding_verdict *verdict, Hold *hold) {
    Claim claim;
    LuaClaim memory;
    LuaCode code;
    if (call.operation == kLuaTake || call.operation == kLuaPeek) {
        if (!begin_claim(call, claim, memory, verdict, &code)) { return code; }

        claim.hold = hold;
        if (!decide_by_ban(call, claim, memory)) { acquire(&claim, 1, ngx_current_msec); }

        conclude(call, claim, memory, verdict);
        return kLuaDone;
    }

    code = make_claim(call, claim, memory);
    if (code != kLuaDone) { return code; }

    if (call.operation == kLuaForget) {
        forget_key(call, claim, memory);
    } else if (!memory.is_unlimited && !settle_here(call, claim)) {
        return kLuaNoRoom;
    }

    return kLuaDone;
}

LuaCode take_plainly(const LuaZone &zone, std::string_view key, const limit_sliding_rate *rate,
                     uint64_t units, limit_sliding_verdict *verdict) {
    const ZoneConf &conf = zone.conf();
    const Limit &limit = zone.limit;
    if ((rate != nullptr && (rate->limit > kLimitMax || rate->window_ms != 0 || conf.variable))
        || conf.memory.aside.overrides->count() != 0
        || (limit.claim.debts != nullptr && limit.claim.debts->has_any())) {
        return run_here(make_call(&zone, kLuaTake, key.data(), key.size(), rate, units), verdict);
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
        record(make_call(&zone, kLuaTake, key.data(), key.size(), nullptr, units), claim, none);
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
