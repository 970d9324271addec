/* Copyright (C) the limit_sliding authors */

#include "core/limiter/debtor.hpp"

#include <algorithm>
#include <cassert>

#include "core/facts/debt_payment.hpp"
#include "core/rules/word_steps.hpp"

namespace limit_sliding {

namespace {

/* Returns true for fixed windows, which pay when they end. */
bool is_fixed(const Policy &policy) { return policy.algorithm == Algorithm::kFixed; }

/* Returns the number of the part at a time of the zone.  Fixed windows have only one part. */
uint64_t part_at(const Policy &policy, uint64_t time_ms) {
    return is_fixed(policy) ? policy.window_number(time_ms) * kDebtParts
                            : time_ms * kDebtParts / policy.window_ms;
}

DebtClock clock_of(const Claim &claim, uint64_t now_ms) {
    const Policy &policy = *claim.policy;
    const uint64_t time_ms = time_of(claim, now_ms);
    return {time_ms, part_at(policy, time_ms), claim.pace(), binary_digits(policy.window_ms)};
}

/* Returns false if the key owes nothing, and its history has to decide. */
[[gnu::noinline]] bool decide_debtor(Claim *claim, bool consumes, uint64_t now_ms) {
    const Debtor debtor(*claim, now_ms);

    if (debtor.owes()) { debtor.decide(claim, consumes); }

    return debtor.owes();
}

} // namespace

Debtor::Debtor(const Claim &claim, uint64_t now_ms)
    : claim_(claim), now_ms_(now_ms), clock_(clock_of(claim, now_ms)),
      debt_(claim.debts->find(claim.hash, clock_)) {
    assert(clock_.pace != 0);
}

void Debtor::decide(Claim *claim, bool consumes) const {
    Claim whole = *claim;

    whole.cost = std::min(claim->cost + debt_.units, kCostMax);
    look_at_history(&whole, now_ms_);

    const bool pays = is_admitted(whole) && consumes && claim->cost != 0;

    if (pays) {
        const uint64_t taken = take(debt_.units, true);

        whole.cost = claim->cost + taken;
        consume_history(&whole, now_ms_);

        /* another request was faster, or the zone is full */
        if (!is_admitted(whole)) { add(taken, false); }
    }

    claim->state = whole.state;
    claim->outcome = whole.outcome;

    claim->rejection = {};
    if (!(pays && is_admitted(whole)) && claim->outcome != Outcome::kRefused) {
        claim->standing = Standing::kOwing;
        claim->rejection = describe(*claim);
    }
}

uint64_t Debtor::add(uint64_t units, bool is_refilled) const {
    return units == 0 && !(is_refilled && owes())
               ? 0
               : claim_.debts->add(claim_.hash, units, history_ends(), is_refilled, clock_);
}

uint64_t Debtor::take(uint64_t units, bool is_moved) const {
    return claim_.debts->take(claim_.hash, units, is_moved ? history_ends() : 0, clock_);
}

/* Returns the part in which all present units of the history have left it: after a window, or when
 * a full bucket has drained at the limit in force. */
uint64_t Debtor::history_ends() const {
    const Policy &policy = *claim_.policy;
    Wide level = Wide{clock_.pace} * policy.window_ms;

    if (is_fixed(policy)) { return clock_.part + kDebtParts; }

    if (policy.is_bucket()) { level = Wide{policy.capacity(clock_.pace)} * policy.window_ms; }

    const uint64_t left_ms = static_cast<uint64_t>((level + clock_.pace - 1) / clock_.pace);
    const uint64_t parts = (clock_.now_ms + left_ms) * kDebtParts;
    return (parts + policy.window_ms - 1) / policy.window_ms;
}

/* Returns the ms until a cost fits. */
uint64_t Debtor::wait_ms(const Claim &claim, uint64_t cost) const {
    const uint64_t capacity = claim.policy->capacity(claim.limit);
    if (cost > capacity) { return kNever; }

    const auto history_ms = [&](uint64_t units) {
        return describe_history(claim, capacity - units, now_ms_).retry_after_ms;
    };
    return DebtPayment{debt_.units, debt_.since, clock_.pace}.wait_ms(*claim.policy, clock_.now_ms,
                                                                      capacity - cost, history_ms);
}

/* Describes the key for a decided claim. */
Verdict Debtor::describe(const Claim &claim) const {
    const uint64_t cost = is_admitted(claim) ? 0 : claim.cost;
    const uint64_t wanted = cost + debt_.units;
    const uint64_t most = std::min(wanted, kCostMax);
    Verdict verdict = describe_history(claim, most, now_ms_);

    if (verdict.excess != 0) { verdict.excess += (wanted - most) * 1000; }

    verdict.remaining -= std::min(verdict.remaining, debt_.units);
    verdict.reset_ms = wait_ms(claim, verdict.remaining + 1);
    verdict.retry_after_ms = wait_ms(claim, cost);
    return verdict;
}

template <Decide &by_history>
void decide_with_debts(Claim *claim, uint64_t now_ms) {
    claim->standing = Standing::kHere;

    const bool consumes = by_history == consume_history;
    if (claim->debts->has_any() && decide_debtor(claim, consumes, now_ms)) { return; }

    by_history(claim, now_ms);
}

template Decide decide_with_debts<consume_history>;
template Decide decide_with_debts<look_at_history>;

} // namespace limit_sliding
