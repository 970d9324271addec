/* Copyright (C) the limit_sliding authors */

/* The settlement of decided claims: charges, refunds, and records of rejected requests.  Units,
 * times and thread safety are as in limiter.hpp. */

#pragma once

#include <cstdint>

#include "core/policy/claim.hpp"

namespace limit_sliding {

/* Records the cost of a rejected claim as if it were admitted, up to the limit, and describes the
 * claim again. docs/algorithms.md tells for each algorithm how much is kept. */
void record_rejected(Claim *claim, uint64_t now_ms);

/* The next three functions settle the final cost of a request.  The claim is as acquire() left it,
 * or a new one for the same key.  A cost is at most 2^53.  A settlement is never rejected: the key
 * may owe, and docs/algorithms.md tells how a debt is paid. */

/* Records a cost regardless of the limit: the key owes the units that find no room in the history.
 * Returns the units that could not be recorded, because the debt is at its maximum or the zone is
 * full. */
uint64_t charge(const Claim &claim, uint64_t cost, uint64_t now_ms);

/* Does the same, and sets *lost to these units.  Returns false if the zone is full. */
bool charge(const Claim &claim, uint64_t cost, uint64_t now_ms, uint64_t *lost);

/* Refunds a part of the cost that an admitted claim consumed at since_ms.  claim.state must be the
 * state after the admission.  The history gets back no units that have left the window, and none
 * after 128 windows or two hours. */
void refund(const Claim &claim, uint64_t cost, uint64_t since_ms, uint64_t now_ms);

/* Returns true if units that the claim consumed at since_ms have left the window, at the latest.
 * Then give_back() would refund units of other requests. */
bool is_past(const Claim &claim, uint64_t since_ms, uint64_t now_ms);

/* Refunds units of a key, the newest first, if their admission is unknown. */
void give_back(const Claim &claim, uint64_t cost, uint64_t now_ms);

/* Does the same, but for a counter first with units of `at_ms` and older ones: what was consumed
 * since then counts for no less time. */
void give_back_older(const Claim &claim, uint64_t cost, uint64_t at_ms, uint64_t now_ms);

/* Adds units of other nodes to a counter, in the parts in which all nodes together have more, so
 * that the count fades at the same times.  `count` has the units of all nodes in n parts of a
 * window and in the part before them, the oldest first.  `newest` is the number of the last part,
 * time x n / window, by a clock that shows `remote_ms` when the caller's shows `now_ms`.  The sum
 * may exceed the limit, without a debt.  Returns false, and changes nothing, if the claim's limit
 * has no states of one word with n parts. */
bool raise_counts(const Claim &claim, uint64_t cost, uint64_t n, uint64_t newest,
                  const uint64_t *count, uint64_t remote_ms, uint64_t now_ms);

/* Refunds the cost of a claim at once, because the request was not admitted. */
void take_back(const Claim &claim, uint64_t cost, uint64_t now_ms);

} // namespace limit_sliding
