/* Copyright (C) the limit_sliding authors */

/* Leases of keys that are numbers, for the tests of leases. */

#pragma once

#include "support.hpp"

#include "redis/shared/leases.hpp"

using namespace limit_sliding;

/* A table of so many groups of two leases, where a key has one of a group. */
#define LEASES_BYTES(groups) (64 + 128 * (groups))
#define GROUP_LEASES 2

#define LEASE_MS kLeaseMs

/* This machine's clock, and the server's at the same time. */
#define NOW_MS 5000000ull
#define SERVER_MS (PRESENT * DAY_MS + 12345)

/* What Redis told of a key, when by its clock. */
struct told_t {
    uint64_t now_ms;
    uint32_t limit;
    uint32_t remaining;
    uint64_t reset_ms;
};

static inline Leases *make_leases(size_t groups) {
    void *memory = aligned_alloc(64, LEASES_BYTES(groups));
    Leases *leases;

    assert_non_null(memory);
    memset(memory, 0, LEASES_BYTES(groups));

    leases = Leases::init(memory, LEASES_BYTES(groups));
    assert_ptr_equal(leases, memory);

    return leases;
}

static inline Policy fixed_of(uint64_t window_ms) {
    Policy policy = evicting(window_ms);

    policy.algorithm = Algorithm::kFixed;

    return policy;
}

/* By the server's clock: from then, in how many ms another part begins. */
static inline uint64_t part_left_ms(uint64_t window_ms, uint64_t parts, uint64_t now_ms) {
    uint64_t next = now_ms * parts / window_ms + 1;

    return (next * window_ms + parts - 1) / parts - now_ms;
}

/* Any time, most often near NOW_MS. */
static inline uint64_t random_time(uint64_t *random) {
    switch (random_below(random, 4)) {
    case 0:
        return NOW_MS - random_below(random, 3000);
    case 1:
        return NOW_MS + random_below(random, 3000);
    case 2:
        return random_below(random, 1ull << 40);
    default:
        return random_next(random) >> random_below(random, 64);
    }
}

static inline Claim lease_claim(const Policy *policy, uint64_t key, uint32_t cost) {
    Claim claim = {0};

    claim.policy = policy;
    claim.hash = (key + 1) * 0x9e3779b97f4a7c15;
    claim.limit = 1000000;
    claim.cost = cost;

    return claim;
}

/* An answer to what was asked at `sent_ms`. */
static inline void lease_add(Leases *leases, const Claim *claim, told_t told, uint32_t units,
                             uint64_t sent_ms, uint64_t now_ms) {
    int64_t parts = (int64_t)parts_of(*claim->policy, told.limit);
    int64_t part = (int64_t)(told.now_ms * (uint64_t)parts / claim->policy->window_ms);
    int64_t values[] = {parts, part};
    RemoteState remote = {told.now_ms, told.limit, values};
    Verdict verdict = {.limit = told.limit, .remaining = told.remaining, .reset_ms = told.reset_ms};

    leases->add(*claim, remote, verdict, units, sent_ms, now_ms);
}

static inline int lease_spend(Leases *leases, Claim *claim, uint64_t now_ms) {
    Verdict verdict;

    return leases->spend(claim, now_ms, &verdict);
}

/* Takes all that can be spent then. */
static inline uint32_t lease_drain(Leases *leases, const Claim *claim, uint64_t now_ms) {
    Claim one = *claim;
    uint32_t units = 0;

    one.cost = 1;

    while (lease_spend(leases, &one, now_ms)) {
        units++;
    }

    return units;
}
