/* Copyright (C) the limit_sliding authors */

/* Claims of Lua, which belong to no request: Lua names the key, and may name limit and cost. */

#pragma once

#include "http/conf/limit_set.hpp"
#include "http/lua/border.hpp"
#include "http/overrides/overridden_claim.hpp"
#include "ngx/ngx.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

/* A zone as Lua uses it, with the limit that a directive `limit_sliding zone=NAME;` would make. */
struct LuaZone : limit_sliding_zone {
    Limit limit;
    bool is_plain; /* take_plainly() can decide: the zone has its states in this node's memory, and
                      no rings, calendar, bans, delays or variable rate */

    ZoneConf &conf() const { return *limit.zone; }
};

/* An operation of Lua on one key. */
struct LuaCall {
    const LuaZone *zone;
    LuaOperation operation;
    ngx_str_t key;
    Override rate;  /* the caller's limit; not set: the zone's */
    uint64_t units; /* 0 .. kSettledMax */
};

/* Returns the call of the arguments of a function of the border. */
inline LuaCall make_call(const limit_sliding_zone *zone, int operation, const char *key, size_t len,
                         const limit_sliding_rate *rate, uint64_t units) {
    const Override own
        = rate != nullptr
              ? Override{rate->limit, {rate->window_ms, static_cast<Calendar>(rate->calendar)}}
              : Override{};
    return {static_cast<const LuaZone *>(zone), static_cast<LuaOperation>(operation),
            to_str({key, len}), own, units};
}

/* Memory that the claim of a call may point to. */
struct LuaClaim {
    OverriddenParts parts;
    RemoteClaim remote; /* in use if the zone is in Redis */
    Verdict ban;        /* in use if a ban has rejected the claim */
    bool is_unlimited;  /* the key has no limit, so the claim is not complete */
};

/* Makes the claim of a call.  Returns kLuaDone, or an error. */
LuaCode make_claim(const LuaCall &call, Claim &claim, LuaClaim &memory);

/* Makes the claim of a call that takes units or peeks.  Returns true if the claim must be decided.
 * Else the call ends with *code: an error, or an admission because the key has no limit. */
bool begin_claim(const LuaCall &call, Claim &claim, LuaClaim &memory,
                 limit_sliding_verdict *verdict, LuaCode *code);

/* Decides the claim by a ban of its key, or by the limit "0" of a banned key.  Returns false if the
 * key is not banned. */
bool decide_by_ban(const LuaCall &call, Claim &claim, LuaClaim &memory);

/* Counts a decided claim, unless the call only peeks, and describes the claim. */
void conclude(const LuaCall &call, Claim &claim, LuaClaim &memory, limit_sliding_verdict *verdict);

/* Charges the units of the call to the claim's key, or gives them back, in this node's memory.
 * Returns false if a key to be charged has no place in a full zone. */
bool settle_here(const LuaCall &call, const Claim &claim);

/* Deletes the facts about the key in this node's memory.  The claim has its RemoteClaim. */
void forget_key(const LuaCall &call, Claim claim, LuaClaim &memory);

/* Does a call that asks Redis for nothing.  `hold` gets the units of a zone with inflight=. */
LuaCode run_here(const LuaCall &call, limit_sliding_verdict *verdict, Hold *hold = nullptr);

/* Does the same for a call that takes units of a plain zone, in two thirds of the instructions.
 * Leaves the call to run_here() if a key of the zone has an override or owes, or if the limit of
 * the caller is "off", "0", has another window than the zone, or is remembered for the API. */
LuaCode take_plainly(const LuaZone &zone, std::string_view key, const limit_sliding_rate *rate,
                     uint64_t units, limit_sliding_verdict *verdict);

/* Computes the numbers of a verdict of take_plainly(). */
void describe_plainly(limit_sliding_verdict *verdict);

} // namespace limit_sliding
