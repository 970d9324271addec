/* Copyright (C) the limit_sliding authors */

/* Claims of Lua, which belong to no request: Lua names the key, and may name limit and cost. */

#pragma once

#include "http/calls/key_call.hpp"
#include "http/conf/limit_set.hpp"
#include "http/lua/border.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* A zone as Lua uses it, with the limit that a directive `limit_sliding zone=NAME;` would make. */
struct LuaZone : limit_sliding_zone {
    Limit limit;
    bool is_plain; /* take_plainly() can decide: the zone has its states in this node's memory, and
                      no rings, calendar, bans, delays or variable rate */

    ZoneConf &conf() const { return *limit.zone; }
};

/* An operation of Lua on one key. */
struct LuaCall : KeyCall {
    LuaOperation operation;
    const LuaZone *lua;

    bool decides() const { return operation == kLuaTake || operation == kLuaPeek; }
};

/* Begins a call with the arguments of a function of the border. */
void begin_call(LuaCall &call, const limit_sliding_zone *zone, int operation, std::string_view key,
                const limit_sliding_rate *rate, uint64_t units);

/* Makes the claim of a call.  Returns true if the call must be executed.  Else it ends with *code:
 * an error, or kLuaDone because the key has no limit. */
bool make_claim(LuaCall &call, limit_sliding_verdict *verdict, LuaCode *code);

/* Decides the claim by a ban of its key, or by the limit "0" of a banned key.  Returns false if the
 * key is not banned. */
bool decide_by_ban(LuaCall &call);

/* Executes a call that charges units, gives units back, or deletes the key.  A key without a limit
 * and a blocked key count nothing. */
Progress change(LuaCall &call);

/* Returns the result of a call.  A decision that is done is counted, unless it is a peek, and
 * described. */
LuaCode end_call(LuaCall &call, Progress progress, limit_sliding_verdict *verdict);

/* Executes a call that asks Redis for nothing.  `hold` gets the units of a zone with inflight=. */
LuaCode run_here(LuaCall &call, limit_sliding_verdict *verdict, Hold *hold = nullptr);

/* Does the same for the arguments of a function of the border. */
LuaCode run_here(const limit_sliding_zone *zone, int operation, std::string_view key,
                 const limit_sliding_rate *rate, uint64_t units, limit_sliding_verdict *verdict);

/* Decides common takes of a plain zone, in two thirds of the instructions.  Leaves to run_here():
 * overrides, debts, "off", "0", another window, limits kept for the API. */
LuaCode take_plainly(const LuaZone &zone, std::string_view key, const limit_sliding_rate *rate,
                     uint64_t units, limit_sliding_verdict *verdict);

/* Computes the numbers of a verdict of take_plainly(). */
void describe_plainly(limit_sliding_verdict *verdict);

} // namespace limit_sliding
