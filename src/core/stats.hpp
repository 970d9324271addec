/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * What a zone's memory holds beside the table: counters, limits of single keys,
 * those that were set and those that were last known, and the keys rejected
 * most.  Times, units and safety are as in limiter.h.
 */

#ifndef LIMIT_SLIDING_CORE_STATS_HPP
#define LIMIT_SLIDING_CORE_STATS_HPP

#include "core/limiter.hpp"

namespace limit_sliding {

/* ---- counters ---- */

enum Count {
    kCountPassed = 0,
    kCountDelayed,
    kCountRejected,
    kCountDelayedDryRun,
    kCountRejectedDryRun,
    kCountErrors,
    kNrequests
};

constexpr auto kNsources = 5;

/*
 * Every worker adds to one of these, two cache lines that no other writes.  If
 * two share one all the same, nothing is lost as long as they add atomically.
 */
struct Counters {
    uint64_t requests[kNrequests];
    uint64_t sources[kNsources];
    SlotCounts slots;
    uint64_t unused[2];
};

/* Adds n of them up in *sum. */
void counters_sum(const Counters *counters, size_t n, Counters *sum);

/* ---- limits of single keys ---- */

struct Overrides {
    uint64_t held;   /* 0: there are none; read it before find() */
    uint64_t places; /* for so many, or nearly */
    uint64_t words[1];
};

constexpr auto kOwnNone = 0u;
constexpr auto kOwnOff = UINT32_MAX; /* the key is not limited */

/*
 * The limit of the key of this hash, or one of the above.  Two keys are taken
 * for one if they share 49 bits of their hash.
 */
uint32_t own_find(const Overrides *own, uint64_t hash);

/*
 * Sets it: 1 .. kLimitMax, or one of the above.  Returns 0 if
 * there is no room for another one.
 */
int own_set(Overrides *own, uint64_t hash, uint32_t limit);

/* ---- limits of keys as they were last known ---- */

struct LimitCache;

/*
 * A cache in `memory`: `bytes` long, at least kLimitCacheBytes,
 * zeroed, aligned to 64.  It holds a limit in 8 bytes.  When it is full it
 * forgets limits that were stored only once first.
 */
constexpr auto kLimitCacheBytes = 128u;

LimitCache *limit_cache_init(void *memory, size_t bytes);

/*
 * The limit that was stored last for the key of this hash, or
 * kOwnOff, or kOwnNone if none is known.
 */
uint32_t limit_cache_find(const LimitCache *cache, uint64_t hash);

/*
 * Stores it, or forgets what is known with kOwnNone.  It writes
 * nothing if that is stored already.  For a key without a limit, in a cache
 * that has few, this reads two words.
 */
void limit_cache_set(LimitCache *cache, uint64_t hash, uint32_t limit);

/* ---- the keys rejected most ---- */

constexpr auto kTopKeys = 100;
constexpr auto kTopBytes = 64; /* of a key, that are kept */
constexpr auto kTopSpanMs = 120000u;

struct Offenders;

/* A caller's own: which rejections it adds.  Zeroed at first. */
struct Sampler {
    uint64_t now_ms;
    uint32_t seen; /* in that ms */
    uint32_t skip; /* then so many, till the next sample */
    uint64_t rest; /* after that one, of those it stands for */
    uint64_t random;
};

/*
 * To be asked for every rejection: for how many this one is to be added; 0: not
 * at all.  So each counts while there are few, in an attack an unbiased sample.
 */
constexpr auto kTopAll = 32u; /* rejections a ms */
constexpr auto kTopSample = 256u;

uint32_t top_weight(Sampler *sampler, uint64_t now_ms);

/* Adds so many rejections of a key. */
void top_add(Offenders *top, uint64_t hash, const void *key, size_t bytes,
             uint32_t weight, uint64_t now_ms);

/* Forgets a key. */
void top_forget(Offenders *top, uint64_t hash);

/* Forgets all. */
void top_clear(Offenders *top);

struct Offender {
    uint64_t rejected; /* in the last one to two spans */
    uint64_t bytes;    /* of the key; of more than TOP_BYTES only
                                    the first ones are kept */
    uint8_t key[kTopBytes];
};

/*
 * Writes them, the most rejected first; returns how many.  Space-saving: any
 * key with more than 1/100 of all rejections is among them, with a count that
 * is too high by no more than the least count here.
 */
size_t top_read(const Offenders *top, uint64_t now_ms,
                Offender offenders[kTopKeys]);

/* ---- where they are ---- */

struct Aside {
    Counters *counters;
    size_t ncounters;
    Overrides *own;
    Offenders *top;
    LimitCache *told; /* keys' own limits, as Redis told
                                                them last; NULL: no Redis */
    LimitCache *last; /* limits that the last request of
                                                a key had by a variable */
    size_t bytes;     /* of all; the rest is for
                                                zone_init() */
};

/* What the zone has, a mask: each takes another 32nd of the memory. */
constexpr auto kAsideRedis = 0x1u;     /* its limits are decided there */
constexpr auto kAsideVariables = 0x2u; /* as rates */

/*
 * Takes a part of a zone's memory, which is as zone_init() wants
 * it: 5% of one of 32k, 1.6% of one of 1m, and what the mask adds.
 */
void aside_init(void *memory, size_t bytes, unsigned mask, Aside *aside);

} // namespace limit_sliding

#endif
