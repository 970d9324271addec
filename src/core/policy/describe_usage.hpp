/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "core/policy/policy.hpp"

namespace limit_sliding {

/* For products of limits and windows that exceed 64 bits: of limits above kLimitMax in Redis, and
 * of debtors. */
__extension__ using Wide = unsigned __int128;

/* Converts units to 1/1000 request, rounded up; `request` is the size of a request in units. */
template <class Number>
constexpr uint64_t thousandths(Number used, Number request) {
    return static_cast<uint64_t>(used / request * 1000
                                 + (used % request * 1000 + request - 1) / request);
}

/* The usage of a key.  A unit is any fraction of a request that divides a request evenly.  Number
 * must hold the largest value. */
template <class Number>
struct UsageOf {
    uint64_t limit;    /* requests a window */
    uint64_t capacity; /* requests that may be used at once */
    Number request;    /* size of a request in units */
    Number used;       /* used units */
    Number fitting;    /* units above which the request has an excess */
};

/*
 * Describes a key for a request that is undecided or rejected.  For an admitted request the cost
 * is 0, and only limit, remaining and reset_ms are meaningful.
 *
 * wait_ms(room) returns the ms until at most `room` requests are used if no further request is
 * admitted.  It is called only if more than `room` requests are used.
 */
template <class WaitMs, class Number = uint64_t>
[[gnu::always_inline]] inline void describe_usage(const UsageOf<Number> &usage, uint64_t cost,
                                                  const WaitMs &wait_ms, Verdict *verdict) {
    assert(usage.capacity != 0 && usage.request != 0);

    Number full = usage.capacity * usage.request;
    Number wanted = usage.used + cost * usage.request;
    Number room = full - std::min(usage.used, full);

    verdict->limit = usage.limit;
    verdict->remaining = static_cast<uint64_t>(room / usage.request);
    verdict->excess
        = wanted > usage.fitting ? thousandths(wanted - usage.fitting, usage.request) : 0;
    verdict->delay_ms = 0;
    verdict->reset_ms = verdict->remaining == usage.capacity
                            ? 0
                            : wait_ms(usage.capacity - verdict->remaining - 1);
    verdict->retry_after_ms = cost > usage.capacity            ? kNever
                              : cost == verdict->remaining + 1 ? verdict->reset_ms
                              : wanted > full                  ? wait_ms(usage.capacity - cost)
                                                               : 0;
}

} // namespace limit_sliding
