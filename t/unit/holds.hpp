/* Copyright (C) the limit_sliding authors */

/* A zone with inflight= and its ledger, for tests of both. */

#pragma once

#include "support.hpp"

#include "core/holds/hold.hpp"

#define LEDGER_BYTES Ledger::kBytesMin
#define LEDGER_ENTRIES 44

static inline Policy in_flight() {
    Policy policy = {0, Algorithm::kInFlight, WhenFull::kEvict, 0};

    return policy;
}

static const Policy holding = in_flight();

/* What worker number `seat` knows. */
static inline Holdings holdings_of(Zone *zone, Ledger *ledger, uint32_t seat) {
    return Holdings(zone, ledger, seat);
}

static inline Claim hold_claim(Zone *zone, Hold *hold, uint64_t key, uint32_t limit,
                               uint32_t cost) {
    Claim claim = claim_of(zone, &holding, key, limit, cost);

    claim.hold = hold;

    return claim;
}

/* Takes units of a key, if the limit has room. */
static inline int takes(Holdings *holdings, Zone *zone, Hold *hold, uint64_t key, uint32_t limit,
                        uint32_t cost = 1, uint64_t now_ms = 1) {
    *hold = {holdings};

    Claim claim = hold_claim(zone, hold, key, limit, cost);

    limit_sliding::acquire(&claim, 1, now_ms);

    return claim.outcome == Outcome::kAdmitted;
}

/* The units of a key that its state has. */
static inline uint64_t held_of(Zone *zone, uint64_t key) {
    Claim claim = hold_claim(zone, nullptr, key, LIMIT_MAX, 1);

    claim.purpose = Purpose::kLook;
    limit_sliding::acquire(&claim, 1, 1);

    return LIMIT_MAX - claim.describe(1).remaining;
}
