/* Copyright (C) the limit_sliding authors */

#include "core/limiter/limiter.hpp"

#include <algorithm>
#include <cassert>

#include "core/limiter/debtor.hpp"
#include "core/limiter/history_decision.hpp"
#include "core/rings/ring_rule.hpp"
#include "core/rules/word_steps.hpp"

namespace limit_sliding {

namespace {

bool is_rejected(const Claim &claim) {
    return !is_admitted(claim) && claim.outcome != Outcome::kUndecided;
}

Decide *consume_of(const Claim &claim) {
    return claim.debts != nullptr ? decide_with_debts<consume_history>
                                  : consume_by_history(*claim.policy, claim.limit);
}

Decide *look_of(const Claim &claim) {
    return claim.debts != nullptr ? decide_with_debts<look_at_history>
                                  : look_by_history(*claim.policy, claim.limit);
}

/* Decides a claim without a verdict. */
void decide(Claim *claim, uint64_t now_ms) {
    auto *const function
        = claim->purpose == Purpose::kConsume ? consume_of(*claim) : look_of(*claim);
    function(claim, now_ms);
}

/* Looks at all claims without a verdict, then consumes all.  Returns false if any rejects. */
bool consume_all(Claim *claims, size_t n, uint64_t now_ms) {
    bool admitted = true;

    for (size_t i = 0; i < n; i++) {
        if (claims[i].is_here()) { look_of(claims[i])(&claims[i], now_ms); }

        admitted &= is_admitted(claims[i]);
    }

    for (size_t i = 0; admitted && i < n; i++) {
        if (!claims[i].consumes()) { continue; }

        consume_of(claims[i])(&claims[i], now_ms);

        if (!is_admitted(claims[i])) {
            /* another request was faster */
            admitted = false;
            limit_sliding::release(claims, i, now_ms);
        }
    }

    return admitted;
}

size_t longest_wait(const Claim *claims, size_t n, uint64_t now_ms) {
    size_t longest = n;
    uint64_t longest_ms = 0;

    for (size_t i = 0; i < n; i++) {
        if (is_rejected(claims[i])) {
            uint64_t wait_ms = claims[i].retry_after_ms(now_ms);

            if (longest == n || wait_ms > longest_ms) {
                longest = i;
                longest_ms = wait_ms;
            }
        }
    }

    return longest;
}

[[gnu::noinline]] size_t acquire_all(Claim *claims, size_t n, uint64_t now_ms) {
    return consume_all(claims, n, now_ms) ? limit_sliding::tightest(claims, n, now_ms)
                                          : longest_wait(claims, n, now_ms);
}

} // namespace

size_t acquire(Claim *claims, size_t n, uint64_t now_ms) {
    assert(n >= 1);
    if (n > 1 || !claims->is_here()) { return acquire_all(claims, n, now_ms); }
    decide(claims, now_ms);
    return 0;
}

size_t describing(const Claim *claims, size_t n, uint64_t now_ms) {
    if (n == 1) { return 0; }

    bool admitted = std::all_of(claims, claims + n, is_admitted);
    return admitted ? limit_sliding::tightest(claims, n, now_ms) : longest_wait(claims, n, now_ms);
}

size_t tightest(const Claim *claims, size_t n, uint64_t now_ms) {
    size_t least = 0;
    double most_used = -1;

    for (size_t i = 0; i < n; i++) {
        double used = share(claims[i], now_ms);

        if (used > most_used) {
            most_used = used;
            least = i;
        }
    }

    return least;
}

void Claim::forget(uint64_t now_ms) const {
    if (debts != nullptr) { Debtor(*this, now_ms).take(UINT64_MAX, false); }

    if (policy->has_rings()) {
        RingRule(*this, time_of(*this, now_ms)).forget();
        return;
    }
    with_algorithm(*this, now_ms, [&](const auto &algorithm) {
        table_of(*this, algorithm, now_ms).amend([](uint64_t) { return Copy::kDead; });
    });
}

void release(Claim *claims, size_t n, uint64_t now_ms) {
    for (size_t i = 0; i < n; i++) {
        Claim &claim = claims[i];

        if (claim.consumes()) {
            take_back(claim, claim.cost, now_ms);
            claim.purpose = Purpose::kLook;
            decide(&claim, now_ms);
            claim.outcome = Outcome::kAdmitted;
        }
    }
}

} // namespace limit_sliding
