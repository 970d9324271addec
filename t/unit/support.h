/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_UNIT_SUPPORT_H
#define LIMIT_SLIDING_UNIT_SUPPORT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* needs some of the above */
#include <cmocka.h>

#include "core/limiter.h"
#include "random.h"

/* The smallest zone: one pair of lines, where every key may be anywhere. */
#define PAIR_BYTES (LIMIT_SLIDING_ZONE_ALIGN + 128)
#define PAIR_SLOTS 8

/* The same for an exact log, whose slots have rings of 14 events. */
#define RING_PAIR_BYTES (LIMIT_SLIDING_ZONE_ALIGN + 1024)
#define RING_LENGTH 14

/* What NGINX leaves to a module of a 1 MiB shared memory zone. */
#define MEGABYTE_ZONE_BYTES 1040384

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

#define LIMIT_MAX LIMIT_SLIDING_LIMIT_MAX
#define SECOND_MS 1000u
#define MINUTE_MS (60 * SECOND_MS)
#define DAY_MS (24 * 60 * MINUTE_MS)
#define YEAR_MS (365ull * DAY_MS)

/* A window's number, large enough to have wrapped in a state. */
#define PRESENT 1000003ull

/* The bytes 0, 1, 2 ... of SipHash's published vectors. */
static const uint8_t test_secret[LIMIT_SLIDING_SECRET_BYTES]
    = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static inline limit_sliding_policy_t evicting(uint64_t window_ms)
{
    limit_sliding_policy_t policy
        = {window_ms, LIMIT_SLIDING_COUNTER, LIMIT_SLIDING_EVICT};

    return policy;
}

static inline limit_sliding_policy_t denying(uint64_t window_ms)
{
    limit_sliding_policy_t policy
        = {window_ms, LIMIT_SLIDING_COUNTER, LIMIT_SLIDING_DENY};

    return policy;
}

/* A zone of states that are a word, as a counter's are. */
static inline limit_sliding_zone_t *init_zone(
    void *memory, size_t bytes,
    const uint8_t secret[LIMIT_SLIDING_SECRET_BYTES])
{
    limit_sliding_policy_t policy = evicting(MINUTE_MS);

    return limit_sliding_zone_init(memory, bytes, &policy, 0, secret);
}

/* A zone on the heap, for free(). */
static inline limit_sliding_zone_t *make_zone_for(
    const limit_sliding_policy_t *policy, size_t bytes)
{
    size_t align = LIMIT_SLIDING_ZONE_ALIGN;
    void *memory = aligned_alloc(align, (bytes + align - 1) / align * align);
    limit_sliding_zone_t *zone;

    assert_non_null(memory);
    memset(memory, 0, bytes);

    zone = limit_sliding_zone_init(memory, bytes, policy, 0, test_secret);
    assert_ptr_equal(zone, memory);

    return zone;
}

static inline limit_sliding_zone_t *make_zone(size_t bytes)
{
    limit_sliding_policy_t policy = evicting(MINUTE_MS);

    return make_zone_for(&policy, bytes);
}

static inline limit_sliding_zone_stats_t stats_of(
    const limit_sliding_zone_t *zone)
{
    limit_sliding_zone_stats_t stats;

    limit_sliding_zone_stats(zone, &stats);

    return stats;
}

/* For counters, which need no limit to be told how long a state lasts. */
static inline uint64_t expires_ms(const limit_sliding_policy_t *policy,
                                  limit_sliding_state_t state, uint64_t now_ms)
{
    return limit_sliding_expires_ms(policy, state, now_ms, 1);
}

static inline uint64_t count_of(const limit_sliding_zone_t *zone,
                                const limit_sliding_policy_t *policy,
                                uint64_t now_ms)
{
    return limit_sliding_zone_count(zone, policy, now_ms, 1);
}

/* For counters, to which it does not matter when that is. */
static inline limit_sliding_state_t refund(const limit_sliding_policy_t *policy,
                                           limit_sliding_state_t state,
                                           limit_sliding_state_t recorded,
                                           uint32_t cost)
{
    return limit_sliding_refund(policy, state, 0, 1, recorded, cost);
}

/* Keys are numbers in these tests. */
static inline limit_sliding_claim_t claim_of(
    limit_sliding_zone_t *zone, const limit_sliding_policy_t *policy,
    uint64_t key, uint32_t limit, uint32_t cost)
{
    limit_sliding_claim_t claim = {0};

    claim.zone = zone;
    claim.policy = policy;
    claim.hash = limit_sliding_zone_hash(zone, &key, sizeof(key));
    claim.limit = limit;
    claim.cost = cost;

    return claim;
}

/* Decides a request under one limit. */
static inline limit_sliding_claim_t acquire(
    limit_sliding_zone_t *zone, const limit_sliding_policy_t *policy,
    uint64_t key, uint32_t limit, uint32_t cost, uint64_t now_ms)
{
    limit_sliding_claim_t claim = claim_of(zone, policy, key, limit, cost);

    limit_sliding_acquire(&claim, 1, now_ms);

    return claim;
}

static inline int admits(limit_sliding_zone_t *zone,
                         const limit_sliding_policy_t *policy, uint64_t key,
                         uint32_t limit, uint32_t cost, uint64_t now_ms)
{
    return acquire(zone, policy, key, limit, cost, now_ms).outcome
           == LIMIT_SLIDING_ADMITTED;
}

/* A counter's state but for the bit by which a full zone ranks it. */
static inline limit_sliding_state_t unranked(limit_sliding_state_t state)
{
    return state & ~(1ull << 44);
}

/* What is left to a key, by a look that consumes nothing. */
static inline uint32_t remaining_of(limit_sliding_zone_t *zone,
                                    const limit_sliding_policy_t *policy,
                                    uint64_t key, uint32_t limit,
                                    uint64_t now_ms)
{
    limit_sliding_claim_t claim = acquire(zone, policy, key, limit, 0, now_ms);
    limit_sliding_verdict_t verdict;

    limit_sliding_claim_describe(&claim, now_ms, &verdict);

    return verdict.remaining;
}

/*
 * The state of a key that had `previous` and `current` requests, the latter in
 * the window of number PRESENT.  They are recorded late in their windows, where
 * the decay has made room for most.
 */
static inline limit_sliding_state_t history(
    const limit_sliding_policy_t *policy, uint32_t previous, uint32_t current)
{
    uint64_t late_ms = PRESENT * policy->window_ms + policy->window_ms - 1;
    limit_sliding_state_t state = 0;

    assert_true(limit_sliding_admit(policy, state, late_ms - policy->window_ms,
                                    LIMIT_MAX, previous, &state));
    assert_true(limit_sliding_admit(policy, state, late_ms, LIMIT_MAX, current,
                                    &state));

    return state;
}

#endif
