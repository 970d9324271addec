/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/facts/debts.hpp"
#include "core/limiter/history_decision.hpp"
#include "core/policy/claim.hpp"

namespace limit_sliding {

/*
 * The key of a claim with its debt at one moment.
 *
 * The units that a charge uses beyond the limit are owed (debts.hpp), and count beside the history:
 *
 *     used = used units of the history + units owed
 *
 * A request is admitted when used + cost <= limit.  Then the history has room for the debt as
 * well, and records both at once.  While the key waits, the units of the history leave their
 * window first, and then each window pays the limit in force for the key.
 */
class Debtor {
public:
    /* claim.debts must not be null. */
    Debtor(const Claim &claim, uint64_t now_ms);

    bool owes() const { return debt_.units != 0; }

    /* Decides a claim of a key that owes, and consumes the cost of an admitted claim if `consumes`
     * is set.  The claims of a request are all looked at first, although they will consume. */
    void decide(Claim *claim, bool consumes) const;

    /* Adds units to the debt.  A new debt waits until the units of the history have expired.  An
     * older debt waits as well with `is_refilled`, if the history has got more units since.
     * Returns the lost units. */
    uint64_t add(uint64_t units, bool is_refilled) const;

    /* Subtracts up to `units` from the debt, and returns their number.  With `is_moved` the caller
     * moves them to the history, and the rest of the debt waits until they have expired. */
    uint64_t take(uint64_t units, bool is_moved) const;

private:
    uint64_t wait_ms(const Claim &claim, uint64_t cost) const;
    uint64_t history_ends() const;
    Verdict describe(const Claim &claim) const;

    const Claim &claim_;
    uint64_t now_ms_; /* time of the caller */
    DebtClock clock_;
    Debt debt_;
};

/* Decides a claim of a zone that may have debts, and sets its standing.  `by_history` is
 * consume_history() or look_at_history(). */
template <Decide &by_history>
void decide_with_debts(Claim *claim, uint64_t now_ms);

} // namespace limit_sliding
