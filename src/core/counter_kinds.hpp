/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/policy.hpp"

namespace limit_sliding {

/*
 * A kind of counter says into how many parts the window of a key is cut, and
 * how its state keeps the counts of these parts in 44 bits.  The kind follows
 * from the limit, so that no count of a key that keeps to its limit is lost.
 */
struct CounterKind {
    uint32_t limit_max; /* the largest limit that it is for */
    uint8_t parts;      /* of a window */
    uint8_t bits;       /* of a count; 0: the counts are a string of bits */
    uint8_t rounding;   /* counts before the newest are multiples of 2^rounding,
                           rounded up */
};

/* These are in order: each has room for whatever those before it hold. */
constexpr CounterKind kCounterKinds[] = {
    {3, 40, 0, 0},        {7, 36, 0, 0},          {15, 28, 0, 0},          {21, 22, 0, 0},
    {31, 7, 5, 0},        {63, 6, 6, 0},          {127, 5, 7, 0},          {255, 4, 8, 0},
    {2047, 3, 11, 0},     {16383, 2, 14, 0},      {4194303, 1, 22, 0},     {16777200, 1, 24, 4},
    {67108608, 1, 26, 8}, {268431360, 1, 28, 12}, {1073676288, 1, 30, 16},
};

constexpr unsigned kCounterKindsLength = sizeof(kCounterKinds) / sizeof(kCounterKinds[0]);
constexpr unsigned kCounterPartsMax = 40;

/* The first kind of one part, as precision=1 asks for. */
constexpr unsigned kCounterWhole = 10;

static_assert(kCounterKinds[kCounterWhole].parts == 1 && kCounterKinds[kCounterWhole - 1].parts > 1,
              "kinds of one part come last");

/* Returns the number of the first kind from `first` on that is for this limit,
 * or of the last one. */
constexpr unsigned counter_kind_from(unsigned first, uint64_t limit) {
    while (first < kCounterKindsLength - 1 && kCounterKinds[first].limit_max < limit) {
        first++;
    }

    return first;
}

/* The kinds of limits up to that of kCounterWhole: of small ones by the limit, of
 * others by their binary digits, as all borders of kinds are there. */
struct CounterKindTable {
    static constexpr unsigned kSmall = 32;

    uint8_t of_small[kSmall] = {};
    uint8_t of_digits[23] = {};

    constexpr CounterKindTable() {
        for (unsigned limit = 0; limit < kSmall; limit++) {
            of_small[limit] = static_cast<uint8_t>(counter_kind_from(0, limit));
        }

        for (unsigned digits = 0; digits < sizeof(of_digits); digits++) {
            of_digits[digits] = static_cast<uint8_t>(counter_kind_from(0, (1ULL << digits) - 1));
        }
    }
};

constexpr CounterKindTable kCounterKindTable;

/* Returns the number of the kind for a limit of 1 or more. */
constexpr unsigned counter_kind(uint64_t limit) {
    if (limit > kCounterKinds[kCounterWhole].limit_max) {
        return counter_kind_from(kCounterWhole, limit);
    }

    return limit < CounterKindTable::kSmall
               ? kCounterKindTable.of_small[limit]
               : kCounterKindTable.of_digits[64 - __builtin_clzll(limit)];
}

/* Returns the parts of a window under precision=auto. */
constexpr unsigned counter_parts(uint64_t limit) {
    return kCounterKinds[counter_kind(limit)].parts;
}

/* Returns the number of the kind for a key under a limit, where the precision is
 * auto or 1. */
inline unsigned counter_kind_of(const Policy &policy, uint64_t limit) {
    unsigned kind = counter_kind(limit);

    return policy.precision == 1 && kind < kCounterWhole ? kCounterWhole : kind;
}

} // namespace limit_sliding
