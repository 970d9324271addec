/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/policy.hpp"

namespace limit_sliding {

/* Products of limits and windows have more than 64 bits where requests may exceed
 * kLimitMax: in Redis, and of keys that owe. */
__extension__ using Wide = unsigned __int128;

/* Requests in 1/1000, rounded up; `request` is one in the unit of `used`. */
template <class Number>
constexpr uint64_t thousandths(Number used, Number request) {
    return static_cast<uint64_t>(used / request * 1000
                                 + (used % request * 1000 + request - 1) / request);
}

/* What a key has used, in any unit of which a request is a whole number, as
 * numbers of a type that holds them. */
template <class Number>
struct UsageOf {
    uint64_t limit;    /* requests a window */
    uint64_t capacity; /* requests that may be used at once */
    Number request;    /* one, in units */
    Number used;       /* units */
    Number fitting;    /* units: more than that is excess */
};

using Usage = UsageOf<uint64_t>;

/*
 * Describes a key to a request of this cost that has yet to be decided, or was
 * rejected.  For one that was admitted the cost is 0, and only limit, remaining
 * and reset_ms have a meaning.
 *
 * wait_ms(room) is how long it takes until no more than so many requests are
 * used if nothing is admitted.  It is called only if that takes some time.
 */
template <class WaitMs, class Number = uint64_t>
[[gnu::always_inline]] inline void describe_usage(const UsageOf<Number> &usage, uint64_t cost,
                                                  const WaitMs &wait_ms, Verdict *verdict) {
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
