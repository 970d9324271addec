/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/policy/policy.hpp"

namespace limit_sliding {

/* A kind of counter: the number of parts of a window, and the format of their counts in 44 bits.
 * The limit selects the kind, so that all requests within the limit can be counted. */
struct CounterKind {
    uint32_t limit_max; /* largest limit for this kind */
    uint8_t parts;      /* parts of a window */
    uint8_t bits;       /* bits of a count; 0: a string of bits */
    uint8_t rounding;   /* older counts are rounded up to multiples of 2^rounding */
};

/* Each kind has room for any counts of the kinds before it. */
constexpr CounterKind kCounterKinds[] = {
    {3, 40, 0, 0},        {7, 36, 0, 0},          {15, 28, 0, 0},          {21, 22, 0, 0},
    {31, 7, 5, 0},        {63, 6, 6, 0},          {127, 5, 7, 0},          {255, 4, 8, 0},
    {2047, 3, 11, 0},     {16383, 2, 14, 0},      {4194303, 1, 22, 0},     {16777200, 1, 24, 4},
    {67108608, 1, 26, 8}, {268431360, 1, 28, 12}, {1073676288, 1, 30, 16},
};

constexpr unsigned kCounterKindsLength = sizeof(kCounterKinds) / sizeof(kCounterKinds[0]);
constexpr unsigned kCounterPartsMax = 40;

/* The first kind of one part, for precision=1. */
constexpr unsigned kCounterWhole = 10;

static_assert(kCounterKinds[kCounterWhole].parts == 1 && kCounterKinds[kCounterWhole - 1].parts > 1,
              "kinds of one part come last");

/* Returns the first kind from `first` on that holds this limit, else the last kind. */
constexpr unsigned counter_kind_from(unsigned first, uint64_t limit) {
    while (first < kCounterKindsLength - 1 && kCounterKinds[first].limit_max < limit) {
        first++;
    }
    return first;
}

/* Maps a limit, up to limit_max of kCounterWhole, to its kind: by value below 32, else by its
 * binary digits, because kinds change only at powers of two there. */
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

/* Returns the kind for a policy with precision=auto or 1. */
inline unsigned counter_kind_of(const Policy &policy, uint64_t limit) {
    unsigned kind = counter_kind(limit);
    return policy.precision == 1 && kind < kCounterWhole ? kCounterWhole : kind;
}

} // namespace limit_sliding
