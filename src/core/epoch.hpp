/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/policy.hpp"

namespace limit_sliding {

/* The time in a tag (slot.hpp): of a key that has the zone's window in the unit of
 * its algorithm.  Else `digits` are those of its window, which are not 0, and the
 * unit is that of OwnEpochs. */
struct Epoch {
    uint64_t number;
    unsigned digits;
};

/* Returns the number of binary digits. */
constexpr unsigned binary_digits(uint64_t n) {
    return 63 ^ static_cast<unsigned>(__builtin_clzll(n << 1 | 1));
}

/* Of windows: those of a year are the longest. */
constexpr unsigned kWindowDigitsMin = binary_digits(kWindowMinMs);
constexpr unsigned kWindowDigitsMax = 35;

/*
 * The epochs of keys that have windows of their own.  An epoch of a window of d
 * digits has 2^e ms, so that all requests to a zone know how old a tag is:
 *
 *     counter, log, fixed   e = d + 1: more than two windows, and at most four
 *     buckets               e = d + the digits of the burst, at most 32: any
 *                           bucket becomes empty in that time
 *
 * So a tag that is two epochs old has a state that is over, and no time stamp has
 * wrapped.  An epoch has 4 s at least: the epochs themselves wrap after a year.
 *
 * An object is for a policy at one moment.
 */
class OwnEpochs {
public:
    /* `now_ms` is of the zone's time. */
    OwnEpochs(const Policy &policy, uint64_t now_ms)
        : now_ms_(now_ms), is_bucket_(policy.algorithm == Algorithm::kTokenBucket
                                      || policy.algorithm == Algorithm::kLeakyBucket),
          burst_digits_(binary_digits(policy.burst)) {}

    /* Returns the present epoch of a key of that window. */
    Epoch present(uint64_t window_ms) const {
        unsigned digits = binary_digits(window_ms);

        return {number(digits), digits};
    }

    uint64_t number(unsigned digits) const { return now_ms_ >> shift(digits); }

    /* Returns how many epochs of windows of so many digits begin within a time from
     * now on. */
    uint64_t within(uint64_t ms, unsigned digits) const {
        return ((now_ms_ + ms) >> shift(digits)) - number(digits);
    }

    /* Returns the binary logarithm of the ms of such an epoch. */
    unsigned shift(unsigned digits) const {
        unsigned wanted = is_bucket_ ? std::min(digits + burst_digits_, kShiftMax) : digits + 1;

        return std::max(wanted, kShiftMin);
    }

    uint64_t now_ms() const { return now_ms_; }

private:
    /* A counter tells times apart for so many windows of 100 ms and more, and a
     * bucket for four times as long as it takes to become empty, at most 2^32 ms. */
    static constexpr unsigned kShiftMin = 12;
    static constexpr unsigned kShiftMax = 32;

    static_assert(1u << kShiftMin <= 64 * kWindowMinMs, "time stamps do not wrap");

    uint64_t now_ms_;
    bool is_bucket_;
    unsigned burst_digits_;
};

} // namespace limit_sliding
