/* Copyright (C) the limit_sliding authors */

/* A zone of one pair of lines, so that a key may be in any of eight slots, and what
 * processes do with its keys. */

#pragma once

#include "checker.hpp"
#include "scenes.hpp"

#include "core/limiter/charges.hpp"
#include "core/limiter/limiter.hpp"
#include "core/table/ring.hpp"
#include "core/table/slot.hpp"
#include "core/table/zone.hpp"

using namespace limit_sliding;

namespace {

constexpr uint64_t kWindowMs = 60000;
constexpr uint64_t kNowMs = 1000 * kWindowMs + 1;

constexpr uint64_t kKey = 1;
constexpr uint64_t kOther = 2;
constexpr uint64_t kVictim = 3;

constexpr unsigned kSlots = 8;

Policy policy;
Zone *zone;
uint64_t limit;
Claim charged; /* by build() */

inline void make_zone(void *memory, Algorithm algorithm, unsigned precision, uint64_t of) {
    static const uint8_t secret[kSecretBytes] = {1, 2, 3};
    const size_t rings = algorithm == Algorithm::kLog ? kLogRing * sizeof(Event)
                         : precision > 1              ? sizeof(Line) - sizeof(Slot)
                                                      : 0;

    policy = {};
    policy.window_ms = kWindowMs;
    policy.algorithm = algorithm;
    policy.precision = precision;
    limit = of;
    zone = Zone::init(memory, sizeof(Zone) + kSlots * (sizeof(Slot) + rings), policy, 0, secret);
}

inline Claim claim_of(uint64_t key, uint64_t cost = 1) {
    Claim claim = {};

    claim.zone = zone;
    claim.policy = &policy;
    claim.hash = (key + 1) * 0x9e3779b97f4a7c15;
    claim.limit = limit;
    claim.cost = cost;
    return claim;
}

inline bool admits(uint64_t key, uint64_t cost = 1, uint64_t now_ms = kNowMs) {
    Claim claim = claim_of(key, cost);

    acquire(&claim, 1, now_ms);
    return claim.outcome == Outcome::kAdmitted;
}

inline Verdict look(uint64_t key, uint64_t now_ms = kNowMs) {
    Claim claim = claim_of(key, 0);

    acquire(&claim, 1, now_ms);
    return claim.describe(now_ms);
}

inline void note_remaining(uint64_t key, uint64_t now_ms = kNowMs) {
    const Verdict verdict = look(key, now_ms);

    weak::note(verdict.remaining);
    weak::note(verdict.reset_ms);
}

/* ---- operations ---- */

template <uint64_t key, uint64_t cost = 1, uint64_t later_ms = 0>
void take() {
    weak::note(admits(key, cost, kNowMs + later_ms));
}

template <uint64_t key, uint64_t cost, uint64_t later_ms = 0>
void owe() {
    weak::note(charge(claim_of(key), cost, kNowMs + later_ms));
}

template <uint64_t key>
void see() {
    note_remaining(key);
}

template <uint64_t later_ms = 0>
void release_charged() {
    Claim claim = charged;

    release(&claim, 1, kNowMs + later_ms);
}

template <uint64_t key, uint64_t cost, uint64_t later_ms = 0>
void give_some_back() {
    give_back(claim_of(key), cost, kNowMs + later_ms);
}

} // namespace
