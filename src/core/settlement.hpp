/* Copyright (C) the limit_sliding authors */

/* What is recorded of claims after they were decided, and taken back.  Times and
 * safety are as in limiter.hpp. */

#pragma once

#include <cstdint>

#include "core/claim.hpp"

namespace limit_sliding {

/*
 * Records what a decided claim has rejected, as if it had been admitted, but no more
 * than the limit holds, and describes the claim as of then.  docs/algorithms.md tells
 * what is held by which algorithm.
 */
void record_rejected(Claim *claim, uint64_t now_ms);

/*
 * The next three settle what a request turned out to cost, by a claim as
 * acquire() left it, or a new one of the same key.  They never reject: a key may
 * owe.  docs/algorithms.md tells how that is paid.  A cost is up to 2^53.
 */

/* Records a cost whatever the limit says.  Returns how many units could not be
 * recorded: 0 but for a key that would owe more than it can, or a full zone. */
uint64_t charge(const Claim &claim, uint64_t cost, uint64_t now_ms);

/* Gives back some of what an admitted claim has consumed, at since_ms;
 * claim.state is as its admission left it.  What has left the window since is not
 * given back, and nothing is after 128 windows or two hours. */
void refund(const Claim &claim, uint64_t cost, uint64_t since_ms, uint64_t now_ms);

/* Gives back so many units of a key, those that were used last first, when it is
 * not known which admission they are of. */
void give_back(const Claim &claim, uint64_t cost, uint64_t now_ms);

/* Replaces what a counter's key has used, in one step: `count` is that of each of n parts of
 * a window and of the one before them, the oldest first, and `newest` the number of the
 * newest one, time x n / window, by a clock at which it was `told_ms`.  That clock may differ
 * from the zone's by anything.  Returns false, and does nothing, if a state of the claim's
 * limit is not one word, or does not have n parts. */
bool set_counts(const Claim &claim, uint64_t n, uint64_t newest, const uint64_t *count,
                uint64_t told_ms, uint64_t now_ms);

/* Takes back what a claim has consumed just now: a request that it was consumed for is
 * not admitted. */
void take_back(const Claim &claim, uint64_t cost, uint64_t now_ms);

} // namespace limit_sliding
