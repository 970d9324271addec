/* Copyright (C) the limit_sliding authors */

#pragma once

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
extern "C" {
#include <cmocka.h>
}

#include "algorithms.hpp"
#include "core/facts/debts.hpp"
#include "core/limiter/limiter.hpp"
#include "core/table/zone.hpp"
#include "pure.hpp"
#include "random.hpp"

using namespace limit_sliding;

/* The smallest zone: one pair of lines, where every key may be anywhere. */
#define PAIR_BYTES (kZoneAlign + 128)
#define PAIR_SLOTS 8

/* The same for an exact log, whose slots have rings of 14 events. */
#define RING_PAIR_BYTES (kZoneAlign + 1024)
#define RING_LENGTH 14

/* What NGINX leaves to a module of a 1 MiB shared memory zone. */
#define MEGABYTE_ZONE_BYTES 1040384

/* The same of one of 16 MiB. */
#define ZONE_16M_BYTES 16674816

/* How many of so many draws, histories or rounds a run takes: a fifth, which reaches the same
 * code, or all with LIMIT_SLIDING_ALL in the environment, as `make unit` has. */
inline unsigned draws(unsigned n) {
    static const bool are_all = getenv("LIMIT_SLIDING_ALL") != nullptr;
    return are_all ? n : n / 5 + 1;
}

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

#define LIMIT_MAX kNarrowMax
#define SECOND_MS 1000u
#define MINUTE_MS (60 * SECOND_MS)
#define DAY_MS (24 * 60 * MINUTE_MS)
#define YEAR_MS (365ull * DAY_MS)

/* A table of debts of one line, for free(). */
#define DEBTS_BYTES 128

/* How far the clock of a worker may be behind that of another, as in tag_epoch.hpp. */
#define BEHIND_MS 64

/* A window's number, large enough to have wrapped in a state. */
#define PRESENT 1000003ull

/* The bytes 0, 1, 2 ... of SipHash's published vectors. */
static const uint8_t test_secret[kSecretBytes]
    = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static inline Policy evicting(uint64_t window_ms) {
    Policy policy = {window_ms, Algorithm::kCounter, WhenFull::kEvict, 1};

    return policy;
}

static inline Policy log_of(uint64_t window_ms) {
    Policy policy = evicting(window_ms);

    policy.algorithm = Algorithm::kLog;

    return policy;
}

static inline Policy parts_of(uint64_t window_ms, uint32_t precision, bool strict = false) {
    Policy policy = evicting(window_ms);

    policy.precision = precision;
    policy.strict = strict;

    return policy;
}

static inline Policy denying(uint64_t window_ms) {
    Policy policy = {window_ms, Algorithm::kCounter, WhenFull::kDeny, 1};

    return policy;
}

/* A zone of states that are a word, as a counter's are. */
static inline Zone *init_zone(void *memory, size_t bytes, const uint8_t secret[kSecretBytes]) {
    Policy policy = evicting(MINUTE_MS);

    return Zone::init(memory, bytes, policy, 0, secret);
}

/* A zone on the heap, for free(). */
static inline Zone *make_zone_for(const Policy *policy, size_t bytes) {
    size_t align = kZoneAlign;
    void *memory = aligned_alloc(align, (bytes + align - 1) / align * align);
    Zone *zone;

    assert_non_null(memory);
    memset(memory, 0, bytes);

    zone = Zone::init(memory, bytes, *policy, 0, test_secret);
    assert_ptr_equal(zone, memory);

    return zone;
}

static inline Debts *make_debts() {
    void *memory = aligned_alloc(64, DEBTS_BYTES);

    assert_non_null(memory);
    memset(memory, 0, DEBTS_BYTES);

    return Debts::init(memory, DEBTS_BYTES);
}

static inline Zone *make_zone(size_t bytes) {
    Policy policy = evicting(MINUTE_MS);

    return make_zone_for(&policy, bytes);
}

struct ZoneStats : SlotCounts {
    uint64_t slots; /* capacity in keys */
};

static inline ZoneStats stats_of(const Zone *zone) {
    return {sum_of(&zone->counts, 1), zone->slot_count()};
}

/* For counters, which need no limit to be told how long a state lasts. */
static inline uint64_t expires_ms(const Policy *policy, State state, uint64_t now_ms) {
    return pure::expires_ms(*policy, state, now_ms, 1);
}

static inline uint64_t count_of(const Zone *zone, const Policy *policy, uint64_t now_ms) {
    return zone->keys(*policy, now_ms, 1, 0, UINT64_MAX);
}

static inline State refund(const Policy *policy, State state, uint64_t now_ms, State recorded,
                           uint32_t cost) {
    return pure::refund(*policy, state, now_ms, 1, recorded, cost);
}

/* Keys are numbers in these tests. */
static inline Claim claim_of(Zone *zone, const Policy *policy, uint64_t key, uint32_t limit,
                             uint32_t cost) {
    Claim claim = {0};

    claim.zone = zone;
    claim.policy = policy;
    claim.hash = zone->hash({(const char *)&key, sizeof(key)}) ^ policy->salt;
    claim.limit = limit;
    claim.cost = cost;

    return claim;
}

/* The same where keys may owe. */
static inline Claim claim_of(Zone *zone, Debts *debts, const Policy *policy, uint64_t key,
                             uint32_t limit, uint32_t cost) {
    Claim claim = claim_of(zone, policy, key, limit, cost);

    claim.debts = debts;

    return claim;
}

/* Decides a request under one limit. */
static inline Claim acquire(Zone *zone, const Policy *policy, uint64_t key, uint32_t limit,
                            uint32_t cost, uint64_t now_ms) {
    Claim claim = claim_of(zone, policy, key, limit, cost);

    limit_sliding::acquire(&claim, 1, now_ms);

    return claim;
}

static inline int admits(Zone *zone, const Policy *policy, uint64_t key, uint32_t limit,
                         uint32_t cost, uint64_t now_ms) {
    return acquire(zone, policy, key, limit, cost, now_ms).outcome == Outcome::kAdmitted;
}

/* A counter's state but for the bit by which a full zone ranks it. */
static inline State unranked(State state) { return state & ~(1ull << 44); }

/* What is left to a key, by a look that consumes nothing. */
static inline uint32_t remaining_of(Zone *zone, const Policy *policy, uint64_t key, uint32_t limit,
                                    uint64_t now_ms) {
    Claim claim = acquire(zone, policy, key, limit, 0, now_ms);
    Verdict verdict;

    verdict = claim.describe(now_ms);

    return verdict.remaining;
}

/* Key k, from 1 on, has k requests of 200; each new one pushes out the least of
 * the last eight. */
static inline void check_least_go(Zone *zone, const Policy *policy, uint64_t keys,
                                  uint64_t now_ms) {
    for (uint64_t key = 1; key <= keys; key++) {
        uint64_t lost = key > PAIR_SLOTS ? key - PAIR_SLOTS : 0;

        assert_true(admits(zone, policy, key, 200, (uint32_t)key, now_ms));
        assert_int_equal(stats_of(zone).evicted, lost);

        for (uint64_t old = 1; old <= key; old++) {
            assert_int_equal(remaining_of(zone, policy, old, 200, now_ms),
                             old <= lost ? 200 : 200 - old);
        }
    }
}

/*
 * The state of a key that had `previous` and `current` requests, the latter in
 * the window of number PRESENT.  They are recorded late in their windows, where
 * the decay has made room for most.
 */
static inline State history(const Policy *policy, uint32_t previous, uint32_t current) {
    uint64_t late_ms = PRESENT * policy->window_ms + policy->window_ms - 1;
    State state = 0;

    assert_true(
        pure::admit(*policy, state, late_ms - policy->window_ms, LIMIT_MAX, previous, &state));
    assert_true(pure::admit(*policy, state, late_ms, LIMIT_MAX, current, &state));

    return state;
}
