/* Copyright (C) the limit_sliding authors */

/* Requests in flight: the units of a key are those of the requests that hold them, whoever
 * takes, releases, dies or gives back at the same time. */

#include "zone.hpp"

#include "core/holds/hold.hpp"

namespace {

constexpr unsigned kDead = weak::kProcesses; /* the seat of a worker that died before */

Ledger *ledger;

/* What each worker knows. */
Holdings holdings[weak::kProcesses + 1];
Holdings used; /* of the worker, after build_used() */
Hold holds[weak::kProcesses + 1];

/* Takes a unit: the first operation of a worker. */
template <unsigned worker, uint64_t key = kKey>
void hold() {
    holdings[worker] = Holdings(zone, ledger, worker);
    holds[worker] = {&holdings[worker]};

    Claim claim = claim_of(key);
    claim.hold = &holds[worker];
    acquire(&claim, 1, kNowMs);
    weak::note(claim.outcome == Outcome::kAdmitted);
}

template <unsigned worker>
void end_hold() {
    holds[worker].release();
}

void recover() { Holdings(zone, ledger, 0).recover(kDead); }

uint64_t held(uint64_t key) {
    Claim claim = claim_of(key, 0);
    claim.purpose = Purpose::kLook;
    acquire(&claim, 1, kNowMs);
    return limit - claim.describe(kNowMs).remaining;
}

void build_of(void *memory, uint64_t of) {
    make_zone(memory, Algorithm::kInFlight, 0, of);
    ledger = Ledger::init(static_cast<char *>(memory) + weak::kMemoryBytes / 2, Ledger::kBytesMin);
}

void build_new(void *memory) { build_of(memory, 1); }

/* The key holds a unit of a worker that is dead. */
void build_dead(void *memory) {
    build_of(memory, 2);
    hold<kDead>();
}

/* The first entry of a worker was another key's. */
void build_used(void *memory) {
    build_of(memory, 1);
    hold<0, kVictim>();
    end_hold<0>();
    used = holdings[0];
}

/* Takes a unit with the entry that build_used() has left. */
void hold_again() {
    Claim claim = claim_of(kKey);
    holdings[0] = used;
    holds[0] = {&holdings[0]};
    claim.hold = &holds[0];
    acquire(&claim, 1, kNowMs);
}

template <uint64_t key>
void see_sum() {
    const uint64_t hash = claim_of(key).hash;
    weak::note(ledger->sums(&hash, kNowMs).units);
}

void see_all() { weak::note(ledger->sums(nullptr, kNowMs).units); }

/* Each slot but one holds a unit, and the victim's is at rest. */
template <uint64_t of>
void build_full(void *memory) {
    build_of(memory, of);

    for (uint64_t key = 100; key < 100 + kSlots - 1; key++) {
        Claim claim = claim_of(key);
        Hold other = {&holdings[kDead]};
        holdings[kDead] = Holdings(zone, ledger, kDead + 1 + static_cast<unsigned>(key));
        claim.hold = &other;
        acquire(&claim, 1, kNowMs);
    }

    hold<kDead, kVictim>();
    end_hold<kDead>();
}

void end() {
    weak::note(held(kKey));
    see_all();
}

/* The units of the worker that may have died are given back. */
void end_mortal() {
    Holdings(zone, ledger, 1).recover(0);
    end();
}

void end_full() {
    weak::note(held(kVictim));
    end();
}

} // namespace

std::vector<weak::Scene> hold_scenes() {
    return {
        {"in flight: a new key, a limit of 1",
         200,
         build_new,
         {{hold<0>, end_hold<0>}, {hold<1>, end_hold<1>}, {hold<2>}},
         end},
        {"in flight: units of the dead are given back",
         200,
         build_dead,
         {{recover}, {hold<1>, end_hold<1>}, {hold<2>}},
         end},
        {"in flight: one dies",
         200,
         build_dead,
         {{hold<0>, end_hold<0>}, {hold<1>, end_hold<1>}, {hold<2>}},
         end_mortal,
         nullptr,
         true},
        {"in flight: sums, of which an entry has another key now",
         200,
         build_used,
         {{hold_again}, {see_all, see_sum<kKey>}, {see_sum<kVictim>}},
         end},
        {"in flight: a slot at rest goes to another key",
         200,
         build_full<1>,
         {{hold<0, kVictim>, end_hold<0>}, {hold<1>, end_hold<1>}, {hold<2, kVictim>}},
         end_full},
    };
}
