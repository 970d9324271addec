/* Copyright (C) the limit_sliding authors */

/* Leases: what is spent was added, by the same key and under the same limit, and where
 * nothing may be lost, all of it. */

#include "scenes.hpp"

#include "redis/shared/leases.hpp"

using namespace limit_sliding;

namespace {

constexpr uint64_t kNowMs = 5000000;
constexpr uint64_t kServerMs = uint64_t{86400000} * 100 + 12345;
constexpr uint64_t kLimit = 1000;
constexpr uint64_t kResetMs = 100;

constexpr unsigned kKeys = 2;
constexpr unsigned kLimits = 2; /* kLimit, and one more: units are not each other's */
constexpr unsigned kGranted = 3;

Leases *leases;
Policy policy;
Claim spent; /* by build() */

Claim claim_of(unsigned key) {
    Claim claim = {};

    claim.policy = &policy;
    claim.hash = (key + 1) * 0x9e3779b97f4a7c15;
    claim.limit = 1000000;
    claim.cost = 1;
    return claim;
}

/* A note is units of a key under a limit, that were added, or spent, or lost. */
enum What { kAdded, kSpent, kLost };

void note(What what, unsigned key, unsigned limit, unsigned units) {
    weak::note(what * 1000u + key * 100u + limit * 10u + units);
}

/* `later_ms` tells when Redis was asked.  What the terms say follows from key and limit. */
template <unsigned key, unsigned limit, uint64_t later_ms = 0>
void add() {
    const int64_t values[] = {1, 0};
    const RemoteState remote = {kServerMs, kLimit + limit, values};
    const uint64_t sent_ms = kNowMs + later_ms;
    Verdict verdict = {};

    verdict.limit = kLimit + limit;
    verdict.remaining = 100 * (key + 1) + 10 * limit;
    verdict.reset_ms = 1000 * (key + 1) + kResetMs * limit;
    note(kAdded, key, limit, kGranted);
    leases->add(claim_of(key), remote, verdict, kGranted, sent_ms, sent_ms);
}

bool is_told_rightly(unsigned key, const Verdict &verdict) {
    const uint64_t limit = verdict.limit - kLimit;
    const uint64_t remaining = 100 * (key + 1) + 10 * limit;
    const uint64_t late_ms = verdict.reset_ms % 1000 - kResetMs * limit;

    return limit < kLimits && verdict.remaining >= remaining && verdict.remaining < remaining + 10
           && late_ms <= 10;
}

template <unsigned key>
bool spend_at(uint64_t now_ms) {
    Claim claim = claim_of(key);
    Verdict verdict;

    if (!leases->spend(&claim, now_ms, &verdict)) { return false; }

    if (now_ms == kNowMs) { weak::check(is_told_rightly(key, verdict), "terms of several leases"); }

    note(kSpent, key, static_cast<unsigned>(verdict.limit - kLimit), 1);
    return true;
}

template <unsigned key>
void spend() {
    spend_at<key>(kNowMs);
}

void return_spent() {
    note(kAdded, 0, 0, 1);
    leases->give_back(spent, kNowMs);
}

void forget() { leases->forget(claim_of(0), kNowMs + 10); }

void build(void *memory) {
    policy = {};
    policy.window_ms = 86400000;
    policy.algorithm = Algorithm::kFixed;
    leases = Leases::init(memory, 64 + 2 * sizeof(Lease));
}

void build_known(void *memory) {
    build(memory);
    add<0, 0>();
}

void build_both(void *memory) {
    build_known(memory);
    add<1, 0>();
}

/* There is one lease for the first key. */
void build_other(void *memory) {
    build(memory);
    add<1, 0>();
}

void build_spent(void *memory) {
    Verdict verdict;

    build_known(memory);
    spent = claim_of(0);
    leases->spend(&spent, kNowMs, &verdict);
}

void end() {
    while (spend_at<0>(kNowMs)) {}

    while (spend_at<1>(kNowMs)) {}
}

/* Others are in use for another second. */
void end_later() {
    while (spend_at<0>(kNowMs + kLeaseMs)) {}

    while (spend_at<1>(kNowMs + kLeaseMs)) {}
}

/* Sums the units of notes. */
void balance_of(const weak::Outcome &outcome, int (&left)[kKeys][kLimits]) {
    for (unsigned process = 0; process <= weak::kProcesses; process++) {
        for (unsigned i = 0; i < outcome.counts[process]; i++) {
            const auto n = static_cast<unsigned>(outcome.notes[process][i]);
            const int units = static_cast<int>(n % 10);

            left[n / 100 % 10][n / 10 % 10] += n / 1000 == kAdded ? units : -units;
        }
    }
}

template <int known, int other_known, bool is_lossless>
bool balances(weak::Outcome &outcome) {
    int left[kKeys][kLimits] = {{known, 0}, {other_known, 0}};

    balance_of(outcome, left);

    for (const auto &key : left) {
        for (int units : key) {
            if (units < 0 || (is_lossless && units > 0)) { return false; }
        }
    }

    return true;
}

} // namespace

std::vector<weak::Scene> lease_scenes() {
    constexpr int n = kGranted;
    constexpr auto again = add<0, 0>;
    constexpr auto changed = add<0, 1, 5>;
    constexpr auto other = add<1, 0, kLeaseMs>;

    return {
        {"leases: a new key, two adds, a spend",
         100,
         build,
         {{again}, {again}, {spend<0>}},
         end,
         balances<0, 0, true>},
        {"leases: a known key, an add, spends",
         100,
         build_known,
         {{again}, {spend<0>, spend<0>}, {spend<0>}},
         end,
         balances<n, 0, true>},
        {"leases: a known key, two adds, a spend",
         100,
         build_known,
         {{again}, {again}, {spend<0>, spend<0>}},
         end,
         balances<n, 0, true>},
        {"leases: another limit, spends",
         100,
         build_known,
         {{changed}, {spend<0>, spend<0>}, {spend<0>}},
         end,
         balances<n, 0, false>},
        {"leases: another limit and the old one",
         100,
         build_known,
         {{changed}, {again}, {spend<0>, spend<0>}},
         end,
         balances<n, 0, false>},
        {"leases: another key takes one of two",
         100,
         build_both,
         {{other}, {again}, {spend<0>, spend<1>}},
         end,
         balances<n, n, false>},
        {"leases: another key, later",
         100,
         build_known,
         {{other}, {add<0, 1, kLeaseMs>}, {spend<0>}},
         end_later,
         balances<n, 0, false>},
        {"leases: a return",
         100,
         build_spent,
         {{return_spent}, {again}, {spend<0>}},
         end,
         balances<n - 1, 0, false>},
        {"leases: forgotten",
         100,
         build_both,
         {{forget}, {again}, {spend<0>, spend<1>}},
         end,
         balances<n, n, false>},
        {"leases: whoever writes is waited for, but not for ever",
         600,
         build_other,
         {{again}, {again}, {spend<0>}},
         end,
         balances<0, n, true>},
        {"leases: who adds dies",
         200,
         build_known,
         {{changed}, {again}, {spend<0>, spend<0>}},
         end,
         balances<n, 0, false>,
         true},
    };
}
