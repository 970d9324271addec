/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <numeric>

#include "core/rules/counter_format.hpp"

namespace limit_sliding {

/* The counts of all parts of a counter, decoded from any kind. */
struct CounterCounts {
    unsigned kind;
    uint64_t newest;
    uint64_t count[kCounterPartsMax + 1];

    /* Leaves the counts uninitialized. */
    CounterCounts(unsigned k, uint64_t p) : kind(k), newest(p) {}

    CounterCounts(unsigned k, uint64_t p, uint64_t counts) : kind(k), newest(p) {
        format(kind).decode(counts, count);
    }

    unsigned n() const { return format(kind).parts(); }
    uint64_t encode() const { return format(kind).encode(count); }

    uint64_t total() const { return count[0] + recent(); }

    /* Returns the sum of all parts but the oldest. */
    uint64_t recent() const { return std::accumulate(count + 1, count + n() + 1, uint64_t{0}); }

    /* Limits each part to `most` requests. */
    void cap(uint64_t most) {
        for (unsigned i = 0; i <= n(); i++) {
            count[i] = std::min(count[i], most);
        }
    }

    /* Removes the oldest requests until at most `most` are left. */
    void keep_newest(uint64_t most) {
        uint64_t all = total();
        for (unsigned i = 0; all > most; i++) {
            all -= take(i, all - most);
        }
    }

    /* Removes up to `cost` requests from a part.  Returns their number. */
    uint64_t take(uint64_t i, uint64_t cost) {
        assert(i <= n());
        uint64_t taken = std::min(count[i], cost);
        count[i] -= taken;
        return taken;
    }

    /* Converts to the first kind, from `first` on, that has room for the counts.  If this kind has
     * more parts, each part must end where one of the new parts ends.  Otherwise requests would
     * move to a later part with each conversion between alternating limits. */
    void fit(unsigned first) {
        CounterCounts own = *this;

        for (unsigned next = first;; next++) {
            *this = own;
            convert_to(next);

            bool moves_back = n() <= own.n() || n() % own.n() == 0;

            if ((moves_back && format(kind).fits(count)) || next == kCounterKindsLength - 1) {
                return;
            }
        }
    }

    void convert_to(unsigned other) {
        uint64_t latest = convert(newest, kind, other);
        unsigned length = format(other).parts();
        uint64_t moved[kCounterPartsMax + 1] = {};

        for (unsigned i = 0; i <= n(); i++) {
            uint64_t age = latest - convert(newest - n() + i, kind, other);

            if (age <= length) { moved[length - age] += count[i]; }
        }

        kind = other;
        newest = latest;
        std::copy_n(moved, length + 1, count);
    }

    static const CounterFormat &format(unsigned kind) {
        assert(kind < kCounterKindsLength);
        return kCounterFormats.format[kind];
    }

    /* Returns the number of the part of another kind that contains the end of a part. */
    static uint64_t convert(uint64_t part, unsigned from, unsigned to) {
        uint64_t n = format(from).parts();
        return ((part + 1) * format(to).parts() + n - 1) / n - 1;
    }
};

} // namespace limit_sliding
