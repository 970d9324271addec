/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "core/policy/policy.hpp"

namespace limit_sliding {

/* The largest lag of one worker's clock behind another's, in ms. */
constexpr uint64_t kBehindMs = 64;

/* Returns the time of the slowest clock.  A state must have expired by then to count as expired. */
constexpr uint64_t behind_ms(uint64_t now_ms) { return now_ms - std::min(now_ms, kBehindMs); }

/* The time in the tag of a slot (slot.hpp).  `digits` is 0 if the key has the zone's window, and
 * the algorithm defines the unit of `number`. Else `digits` is the number of binary digits of the
 * key's window, and KeyEpochs defines the unit. */
struct TagEpoch {
    uint64_t number;
    unsigned digits;
};

constexpr unsigned binary_digits(uint64_t n) {
    return 63 ^ static_cast<unsigned>(__builtin_clzll(n << 1 | 1));
}

/* The binary digits of the shortest window and of a year, in ms. */
constexpr unsigned kWindowDigitsMin = binary_digits(kWindowMinMs);
constexpr unsigned kWindowDigitsMax = 35;

/* The bits for the digits of a window, which replace the lowest bits of a key's hash. */
constexpr uint64_t kDigitsMask = 31;

static_assert(kWindowDigitsMax - kWindowDigitsMin <= kDigitsMask, "the digits of any window");

constexpr uint64_t with_window_digits(uint64_t hash, unsigned digits) {
    assert(digits >= kWindowDigitsMin && digits <= kWindowDigitsMax);
    return (hash & ~kDigitsMask) | (digits - kWindowDigitsMin);
}

constexpr unsigned window_digits(uint64_t hash) {
    return static_cast<unsigned>(hash & kDigitsMask) + kWindowDigitsMin;
}

/*
 * Epochs of keys with their own window.  If the window has d binary digits, an epoch lasts 2^e ms,
 * so that any request to the zone can compute the age of a tag:
 *
 *     counter, log, fixed   e = d + 1: two to four windows
 *     buckets               e = d + digits of the burst, at most 32: any
 *                           bucket becomes empty in this time
 *
 * So a state has expired once its tag is two epochs old, and its time stamp has not wrapped
 * before.  An epoch lasts 4 s or more, so epochs wrap after a year or more.
 *
 * An object belongs to one policy and one moment.
 */
struct KeyEpochs {
    const Policy &policy;
    uint64_t now_ms; /* the zone's time */

    /* Returns the present epoch for keys with the policy's window. */
    TagEpoch present() const {
        unsigned digits = binary_digits(policy.window_ms);
        return {number(digits), digits};
    }

    uint64_t number(unsigned digits) const { return now_ms >> shift(digits); }

    /* Returns the binary logarithm of the length of an epoch in ms. */
    unsigned shift(unsigned digits) const {
        assert(digits >= kWindowDigitsMin && digits <= kWindowDigitsMax);
        unsigned wanted = policy.is_bucket()
                              ? std::min(digits + binary_digits(policy.burst), kShiftMax)
                              : digits + 1;
        return std::max(wanted, kShiftMin);
    }

private:
    /* Binary logarithms of epochs in ms.  Time stamps of counters do not wrap within two epochs of
     * 64 windows.  Time stamps of buckets wrap after four times the time to become empty, which is
     * at most 2^32 ms. */
    static constexpr unsigned kShiftMin = 12;
    static constexpr unsigned kShiftMax = 32;

    static_assert(1u << kShiftMin <= 64 * kWindowMinMs, "time stamps do not wrap");
};

} // namespace limit_sliding
