/* Copyright (C) the limit_sliding authors */

/*
 * What a key owes: by how much what it has used exceeds its limit L, as only a
 * charge can make it do.  It is used up in the windows to come, L in each, until
 * the rest is used in the last one.  docs/algorithms.md, "Owing", has the rule.
 */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/policy.hpp"

namespace limit_sliding {

/* The most windows ahead for which a key may owe: of a counter or fixed windows,
 * and of a bucket, where it is 49 days at most. */
constexpr uint64_t kDebtWindows = 1000;
constexpr uint64_t kBucketDebtWindows = 64;
constexpr uint64_t kBucketDebtMs = 1ULL << 32;

/* A debt as counters and fixed windows have it.  At window k, before `window`,
 * (window - k) x pace + rest is used. */
struct Debt {
    uint64_t window; /* the last one in which some of it is used */
    uint64_t pace;   /* what is used in each one before: the limit of the charge */
    uint64_t rest;   /* what is used in that one, 1 .. pace when it is made */

    /* Returns the debt of a key that has used so much, which is above its limit,
     * at a window; `lost` is what exceeds the most that a key may owe. */
    static Debt of(uint64_t used, uint64_t limit, uint64_t window, uint64_t *lost) {
        uint64_t owed = std::min(used - limit, kDebtWindows * limit);
        uint64_t before = (owed - 1) / limit;

        *lost = used - limit - owed;

        return {window + before + 1, limit, owed - before * limit};
    }

    uint64_t used(uint64_t present) const { return (window - present) * pace + rest; }

    /* Returns in which window no more than `room`, which is less than now and at
     * least `rest`, is used for the first time. */
    uint64_t window_of(uint64_t room) const {
        return window - (room - rest) / std::max<uint64_t>(pace, 1);
    }
};

/*
 * A limit in 13 bits, never 0: its first 9 binary digits, rounded up.
 */
struct LimitCode {
    static constexpr unsigned kBits = 13;
    static constexpr unsigned kDigits = 9;

    static uint64_t of(uint64_t limit) {
        unsigned length = 64 - static_cast<unsigned>(__builtin_clzll(limit | 1));
        unsigned shift = std::max(length, kDigits) - kDigits;
        uint64_t digits = (limit + (1ULL << shift) - 1) >> shift;

        return (uint64_t{shift} << (kDigits - 1)) + digits;
    }

    /* Returns the limit of a code, as a request under some limit sees it: that
     * one if it has the same code, and at most 2^-8 more than it was. */
    static uint64_t limit(uint64_t code, uint64_t present) {
        if (code == of(present)) { return present; }

        uint64_t shift = std::max<uint64_t>(code >> (kDigits - 1), 1) - 1;
        uint64_t digits = code - (shift << (kDigits - 1));

        return std::clamp<uint64_t>(digits << shift, 1, kLimitMax);
    }
};

static_assert((kLimitMax >> 21) < 1u << LimitCode::kDigits, "a limit is shifted by 21 at most");

} // namespace limit_sliding
