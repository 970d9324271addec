/* Copyright (C) the limit_sliding authors */

/*
 * The interface of the core, which decides claims in shared memory.
 *
 * Times are in ms of one monotonic clock; limits and costs are in units, one for a plain request.
 * Threads and processes may call all functions on the same zone at the same time unless a comment
 * says otherwise.
 */

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/facts/debts.hpp"
#include "core/limiter/charges.hpp"
#include "core/limiter/history_decision.hpp"
#include "core/policy/claim.hpp"

namespace limit_sliding {

/*
 * Decides n >= 1 claims of one request, all or nothing: consumes all if all admit, and none if any
 * rejects.  Returns the index of the claim that describes the request: the rejection with the
 * longest wait or, if all admit, the claim with the least share remaining.  The request is
 * admitted if the outcome of this claim is Outcome::kAdmitted.  Claims with a verdict keep their
 * outcome and consume nothing.
 *
 * A state may be ahead of now_ms by another worker's clock.  Such a state is read as of its own
 * time, so that a window never moves back.  A cost of 0 is admitted if the limit is not exceeded,
 * and changes nothing.
 */
size_t acquire(Claim *claims, size_t n, uint64_t now_ms);

/* Returns the index of the claim that describes a request, of n >= 1 decided claims, as acquire()
 * does. */
size_t describing(const Claim *claims, size_t n, uint64_t now_ms);

/* Returns the index of the claim with the least share remaining, of n >= 1 admitted claims. */
size_t tightest(const Claim *claims, size_t n, uint64_t now_ms);

/* Refunds claims that were admitted together, n >= 0.  The admission must be less than two hours
 * and less than 128 windows ago, before states wrap.  Afterwards the claims are described as if
 * they had not consumed. */
void release(Claim *claims, size_t n, uint64_t now_ms);

/* Charges a claim like charge() of settlement.hpp, at less cost if the limit has room and no key
 * owes.  `consume` is consume_by_history() of the claim, or a function that rejects if
 * claim.pace() is another limit.  claim.debts must not be null. */
inline uint64_t charge(Decide *consume, const Claim &claim, uint64_t cost, uint64_t now_ms) {
    if (cost <= claim.limit && !claim.debts->has_any()) {
        Claim more;

        /* `consume` reads only the fields before `purpose`, and `counts` */
        std::memcpy(&more, &claim, offsetof(Claim, cost));
        more.cost = cost;
        more.counts = claim.counts;
        consume(&more, now_ms);

        if (more.outcome == Outcome::kAdmitted) { return 0; }

        if (more.outcome == Outcome::kRefused) { return cost; }

        cost = more.cost; /* so `cost` need not be kept over the call */
    }

    return charge(claim, cost, now_ms);
}

} // namespace limit_sliding
