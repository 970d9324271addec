/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * What a zone's memory holds beside the table: counters, limits of single keys,
 * those that were set and those that were last known, and the keys rejected
 * most.  Times, units and safety are as in limiter.h.
 */

#ifndef LIMIT_SLIDING_CORE_STATS_H
#define LIMIT_SLIDING_CORE_STATS_H

#include "core/limiter.h"

#ifdef __cplusplus
extern "C" {
#endif


/* ---- counters ---- */

typedef enum {
    LIMIT_SLIDING_COUNT_PASSED = 0,
    LIMIT_SLIDING_COUNT_DELAYED,
    LIMIT_SLIDING_COUNT_REJECTED,
    LIMIT_SLIDING_COUNT_DELAYED_DRY_RUN,
    LIMIT_SLIDING_COUNT_REJECTED_DRY_RUN,
    LIMIT_SLIDING_COUNT_ERRORS,
    LIMIT_SLIDING_NREQUESTS
} limit_sliding_count_t;

#define LIMIT_SLIDING_NSOURCES  5

/*
 * Every worker adds to one of these, two cache lines that no other writes.  If
 * two share one all the same, nothing is lost as long as they add atomically.
 */
typedef struct {
    uint64_t                     requests[LIMIT_SLIDING_NREQUESTS];
    uint64_t                     sources[LIMIT_SLIDING_NSOURCES];
    limit_sliding_slot_counts_t  slots;
    uint64_t                     unused[2];
} limit_sliding_counters_t;

/* Adds n of them up in *sum. */
void limit_sliding_counters_sum(const limit_sliding_counters_t *counters,
    size_t n, limit_sliding_counters_t *sum);


/* ---- limits of single keys ---- */

typedef struct {
    uint64_t  held;              /* 0: there are none; read it before find() */
    uint64_t  places;            /* for so many, or nearly */
    uint64_t  words[1];
} limit_sliding_own_t;

#define LIMIT_SLIDING_OWN_NONE  0u
#define LIMIT_SLIDING_OWN_OFF   UINT32_MAX   /* the key is not limited */

/*
 * The limit of the key of this hash, or one of the above.  Two keys are taken
 * for one if they share 49 bits of their hash.
 */
uint32_t limit_sliding_own_find(const limit_sliding_own_t *own, uint64_t hash);

/*
 * Sets it: 1 .. LIMIT_SLIDING_LIMIT_MAX, or one of the above.  Returns 0 if
 * there is no room for another one.
 */
int limit_sliding_own_set(limit_sliding_own_t *own, uint64_t hash,
    uint32_t limit);


/* ---- limits of keys as they were last known ---- */

typedef struct limit_sliding_limit_cache_s  limit_sliding_limit_cache_t;

/*
 * A cache in `memory`: `bytes` long, at least LIMIT_SLIDING_LIMIT_CACHE_BYTES,
 * zeroed, aligned to 64.  It holds a limit in 8 bytes.  When it is full it
 * forgets limits that were stored only once first.
 */
#define LIMIT_SLIDING_LIMIT_CACHE_BYTES  128u

limit_sliding_limit_cache_t *limit_sliding_limit_cache_init(void *memory,
    size_t bytes);

/*
 * The limit that was stored last for the key of this hash, or
 * LIMIT_SLIDING_OWN_OFF, or LIMIT_SLIDING_OWN_NONE if none is known.
 */
uint32_t limit_sliding_limit_cache_find(
    const limit_sliding_limit_cache_t *cache, uint64_t hash);

/*
 * Stores it, or forgets what is known with LIMIT_SLIDING_OWN_NONE.  It writes
 * nothing if that is stored already.  For a key without a limit, in a cache
 * that has few, this reads two words.
 */
void limit_sliding_limit_cache_set(limit_sliding_limit_cache_t *cache,
    uint64_t hash, uint32_t limit);


/* ---- the keys rejected most ---- */

#define LIMIT_SLIDING_TOP_KEYS     100
#define LIMIT_SLIDING_TOP_BYTES    64        /* of a key, that are kept */
#define LIMIT_SLIDING_TOP_SPAN_MS  120000u

typedef struct limit_sliding_top_s  limit_sliding_top_t;

/* A caller's own: which rejections it adds.  Zeroed at first. */
typedef struct {
    uint64_t  now_ms;
    uint32_t  seen;              /* in that ms */
    uint32_t  skip;              /* then so many, till the next sample */
    uint64_t  rest;              /* after that one, of those it stands for */
    uint64_t  random;
} limit_sliding_sampler_t;

/*
 * To be asked for every rejection: for how many this one is to be added; 0: not
 * at all.  So each counts while there are few, in an attack an unbiased sample.
 */
#define LIMIT_SLIDING_TOP_ALL     32u        /* rejections a ms */
#define LIMIT_SLIDING_TOP_SAMPLE  256u

uint32_t limit_sliding_top_weight(limit_sliding_sampler_t *sampler,
    uint64_t now_ms);

/* Adds so many rejections of a key. */
void limit_sliding_top_add(limit_sliding_top_t *top, uint64_t hash,
    const void *key, size_t bytes, uint32_t weight, uint64_t now_ms);

/* Forgets a key. */
void limit_sliding_top_forget(limit_sliding_top_t *top, uint64_t hash);

/* Forgets all. */
void limit_sliding_top_clear(limit_sliding_top_t *top);

typedef struct {
    uint64_t  rejected;          /* in the last one to two spans */
    uint64_t  bytes;             /* of the key; of more than TOP_BYTES only
                                    the first ones are kept */
    uint8_t   key[LIMIT_SLIDING_TOP_BYTES];
} limit_sliding_offender_t;

/*
 * Writes them, the most rejected first; returns how many.  Space-saving: any
 * key with more than 1/100 of all rejections is among them, with a count that
 * is too high by no more than the least count here.
 */
size_t limit_sliding_top_read(const limit_sliding_top_t *top, uint64_t now_ms,
    limit_sliding_offender_t offenders[LIMIT_SLIDING_TOP_KEYS]);


/* ---- where they are ---- */

typedef struct {
    limit_sliding_counters_t *counters;
    size_t                    ncounters;
    limit_sliding_own_t      *own;
    limit_sliding_top_t      *top;
    limit_sliding_limit_cache_t
                             *told;          /* keys' own limits, as Redis told
                                                them last; NULL: no Redis */
    limit_sliding_limit_cache_t
                             *last;          /* limits that the last request of
                                                a key had by a variable */
    size_t                    bytes;         /* of all; the rest is for
                                                limit_sliding_zone_init() */
} limit_sliding_aside_t;

/* What the zone has, a mask: each takes another 32nd of the memory. */
#define LIMIT_SLIDING_ASIDE_REDIS      0x1u  /* its limits are decided there */
#define LIMIT_SLIDING_ASIDE_VARIABLES  0x2u  /* as rates */

/*
 * Takes a part of a zone's memory, which is as limit_sliding_zone_init() wants
 * it: 5% of one of 32k, 1.6% of one of 1m, and what the mask adds.
 */
void limit_sliding_aside_init(void *memory, size_t bytes, unsigned mask,
    limit_sliding_aside_t *aside);


#ifdef __cplusplus
}
#endif

#endif /* LIMIT_SLIDING_CORE_STATS_H */
