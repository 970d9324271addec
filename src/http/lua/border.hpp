/* Copyright (C) the limit_sliding authors */

/*
 * The border to Lua: the functions and structs that lua/limit_sliding.lua calls and reads by FFI.
 * That file repeats the declarations word by word, and t/lua/border.t compares both.  A change of a
 * declaration needs a new version.
 *
 * Names, keys and rates are bytes with a length, and are copied if they are needed later.  A rate
 * of nullptr stands for the limit of the zone.  Units are at most kSettledMax.  Functions that
 * return int return one of LuaCode, except for limit_sliding_lua_version().
 */

#pragma once

#include <cstddef>
#include <cstdint>

namespace limit_sliding {

/* The version of the border. */
constexpr int kLuaVersion = 2;

/* Results of functions.  The negative ones are errors, see limit_sliding_lua_text(). */
enum LuaCode : int {
    kLuaDone = 0,
    kLuaWaits = 1, /* Lua waits until the semaphore of the wait is posted */
    kLuaEmptyKey = -1,
    kLuaNoRate = -2,
    kLuaHeld = -3,    /* the zone has inflight= */
    kLuaNotHeld = -4, /* the zone has no inflight= */
    kLuaNoMemory = -5,
    kLuaAway = -6,    /* Redis does not answer */
    kLuaRefused = -7, /* Redis has replied with an error */
    kLuaNoHold = -8,  /* the request holds nothing of the key */
    kLuaNoRoom = -9,  /* a full zone with full=deny has no place for the key */
    kLuaCodes = 10    /* number of texts: one for each error, and an empty one for kLuaDone */
};

/* Operations of limit_sliding_lua_run() and limit_sliding_lua_ask(). */
enum LuaOperation : int { kLuaTake = 0, kLuaPeek, kLuaCharge, kLuaGiveBack, kLuaForget };

} // namespace limit_sliding

#pragma GCC visibility push(default)

extern "C" {

/* The facts of a zone, which live as long as the worker.  If `queues` is set, the zone may delay
 * requests.  If `asks` is set, Redis decides, so Lua must call limit_sliding_lua_ask(). */
typedef struct {
    double window_ms;
    double burst;
    bool in_flight;
    bool queues;
    bool remote;
    bool asks;
} limit_sliding_zone;

/* Times are in ms.  A time that never comes, and a limit that does not exist, are infinite.
 * `source_number` is an index of the values of $limit_sliding_source.  If `is_late` is set, the
 * numbers are not valid yet, and limit_sliding_lua_describe() computes them from the fields from
 * `outcome` on: few programs read the numbers of a request that passes. */
typedef struct {
    double limit_number;
    double remaining_number;
    double reset_number;
    double retry_after_number;
    double delay_number;
    double window_ms;
    bool admitted;
    bool is_late;
    unsigned char source_number;
    unsigned char outcome;
    const limit_sliding_zone *zone;
    uint64_t limit_of_claim;
    uint64_t cost;
    uint64_t state;
    uint64_t now_ms;
} limit_sliding_verdict;

/* A limit of the caller: the fields of an Override.  limit_sliding_lua_rate() makes it. */
typedef struct {
    uint64_t limit;
    uint64_t window_ms;
    unsigned char calendar;
} limit_sliding_rate;

/* A wait for Redis, and units in flight that Lua holds. */
typedef struct limit_sliding_wait limit_sliding_wait;
typedef struct limit_sliding_hold limit_sliding_hold;

int limit_sliding_lua_version(void);
const char *limit_sliding_lua_text(int code);

/* Returns the zone of this name.  If there is none, returns nullptr, and sets *error to an error to
 * which Lua appends the name. */
const limit_sliding_zone *limit_sliding_lua_zone(const char *name, size_t len, const char **error);

/* Parses a rate.  Returns false if the text is invalid. */
bool limit_sliding_lua_rate(const limit_sliding_zone *zone, const char *text, size_t len,
                            limit_sliding_rate *rate);

/* Runs an operation that asks Redis for nothing.  Sets the verdict if kLuaTake and kLuaPeek
 * succeed. */
int limit_sliding_lua_run(const limit_sliding_zone *zone, int operation, const char *key,
                          size_t len, const limit_sliding_rate *rate, uint64_t units,
                          limit_sliding_verdict *verdict);

void limit_sliding_lua_describe(limit_sliding_verdict *verdict);

/* Holds units of a zone in shared memory until the end of the request, which may be nullptr.  Sets
 * the verdict, and *hold if the verdict admits.  limit_sliding_lua_release() gives the units back,
 * once.  limit_sliding_lua_drop() must be called when Lua has no reference to the hold any more. */
int limit_sliding_lua_hold(const limit_sliding_zone *zone, void *request, const char *key,
                           size_t len, const limit_sliding_rate *rate, uint64_t units,
                           limit_sliding_verdict *verdict, limit_sliding_hold **hold);
void limit_sliding_lua_release(limit_sliding_hold *hold);
void limit_sliding_lua_drop(limit_sliding_hold *hold);

/* Releases the newest hold of the key in the request. */
int limit_sliding_lua_leave(const limit_sliding_zone *zone, void *request, const char *key,
                            size_t len);

/* The next functions do not exist in builds without hiredis.
 *
 * Creates a wait, for one call at a time.  `semaphore` is a semaphore of ngx_lua, `post` the
 * function that posts it, and `free` the function that frees it.  The wait owns the semaphore.
 * Returns nullptr, and leaves the semaphore to the caller, if there is no memory.
 * limit_sliding_lua_end() must be called when Lua has no reference to the wait any more.  It ends
 * the call under way, if there is one. */
limit_sliding_wait *limit_sliding_lua_wait(void *semaphore, int (*post)(void *, int),
                                           void (*free)(void *));

/* Begins an operation for which Redis is asked.  After kLuaWaits, Lua waits until the semaphore is
 * posted, and calls limit_sliding_lua_answer(), which may return kLuaWaits again. */
int limit_sliding_lua_ask(limit_sliding_wait *wait, const limit_sliding_zone *zone, int operation,
                          const char *key, size_t len, const limit_sliding_rate *rate,
                          uint64_t units, limit_sliding_verdict *verdict);
int limit_sliding_lua_answer(limit_sliding_wait *wait, limit_sliding_verdict *verdict);

/* Begins to hold units in Redis, as limit_sliding_lua_hold() does in shared memory.  *hold is valid
 * once the call has ended with kLuaDone, if the verdict admits. */
int limit_sliding_lua_ask_hold(limit_sliding_wait *wait, const limit_sliding_zone *zone,
                               void *request, const char *key, size_t len,
                               const limit_sliding_rate *rate, uint64_t units,
                               limit_sliding_verdict *verdict, limit_sliding_hold **hold);
void limit_sliding_lua_end(limit_sliding_wait *wait);

} // extern "C"

#pragma GCC visibility pop
