/* Copyright (C) the limit_sliding authors */

/*
 * The decisions of the core.  It knows neither NGINX nor Redis: it reads no
 * clock, takes no lock, allocates nothing and logs nothing.  Time, memory and
 * randomness are arguments.
 *
 * Units: times are milliseconds (_ms) of one monotonic clock.  Limits and costs
 * are requests.  Functions are safe to call from any number of threads and
 * processes on the same zone unless they say otherwise.
 */

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/claim.hpp"
#include "core/settlement.hpp"

namespace limit_sliding {

/*
 * Decides n >= 1 limits of one request, all or nothing: each is consumed if
 * all admit, none if any rejects.  Returns the index of the claim that
 * describes the request: the one to wait longest for if any rejected (so that
 * its retry time holds for all), else the one with the least share remaining.
 * The request is admitted if that claim's outcome is Outcome::kAdmitted.
 * Those with a verdict keep their outcome, and consume nothing.
 *
 * A state whose time lies ahead of now_ms, because another worker's clock is
 * ahead, is taken as of its own time: a window never moves back.  A cost of 0
 * is admitted while the limit is not exceeded, and changes nothing.
 */
size_t acquire(Claim *claims, size_t n, uint64_t now_ms);

/* Decides one claim, and consumes what it admits, if that is its purpose. */
using Decide = void(Claim *claim, uint64_t now_ms);

/* Returns how acquire() decides a single claim of a purpose under a policy and a
 * limit.  These are for callers that know all before there is a claim. */
Decide *decide_of(const Policy &policy, uint64_t limit, Purpose purpose);
Decide *consume_of(const Policy &policy, uint64_t limit);

/* Returns the index of the claim that describes a request, of n >= 1 decided
 * ones, as acquire() does. */
size_t describing(const Claim *claims, size_t n, uint64_t now_ms);

/* Returns the index of the one with the least share remaining; n >= 1, all
 * admitted. */
size_t tightest(const Claim *claims, size_t n, uint64_t now_ms);

/* Takes back what claims that were admitted together have consumed; n >= 0.
 * That must have been less than two hours ago, and less than 128 windows: states
 * tell times apart for little longer.  They are then described as of now, as if they
 * had only looked. */
void release(Claim *claims, size_t n, uint64_t now_ms);

/* Charges a claim as the other charge() does.  Mostly the limit has room for the cost,
 * and what consume_of() has returned for the claim takes few instructions to record it. */
inline uint64_t charge(Decide *consume, const Claim &claim, uint64_t cost, uint64_t now_ms) {
    if (cost <= claim.limit) {
        Claim more;

        std::memcpy(&more, &claim, offsetof(Claim, outcome));
        more.cost = cost;
        consume(&more, now_ms);

        if (more.outcome == Outcome::kAdmitted) { return 0; }

        if (more.outcome == Outcome::kRefused) { return cost; }
    }

    return charge(claim, cost, now_ms);
}

} // namespace limit_sliding
