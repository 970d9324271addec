/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "core/counter_format.hpp"

namespace limit_sliding {

/* The counts of a counter's parts, as numbers, of any kind. */
struct CounterCounts {
    unsigned kind;
    uint64_t newest;
    uint64_t count[kCounterPartsMax + 1];

    /* Leaves the counts to its caller. */
    CounterCounts(unsigned k, uint64_t p) : kind(k), newest(p) {}

    CounterCounts(unsigned k, uint64_t p, uint64_t counts) : kind(k), newest(p) {
        format(kind).decode(counts, count);
    }

    unsigned n() const { return format(kind).parts(); }
    uint64_t encode() const { return format(kind).encode(count); }

    uint64_t total() const { return count[0] + recent(); }

    /* Returns the sum of all but the oldest one. */
    uint64_t recent() const { return std::accumulate(count + 1, count + n() + 1, uint64_t{0}); }

    /* Leaves no more than so many in each part. */
    void cap(uint64_t most) {
        for (unsigned i = 0; i <= n(); i++) {
            count[i] = std::min(count[i], most);
        }
    }

    /* Takes the oldest requests out, until no more than so many are left. */
    void keep_newest(uint64_t most) {
        uint64_t all = total();

        for (unsigned i = 0; all > most; i++) {
            all -= take(i, all - most);
        }
    }

    /* Takes requests out of a part, as far as it has them. */
    uint64_t take(uint64_t i, uint64_t cost) {
        uint64_t taken = std::min(count[i], cost);

        count[i] -= taken;

        return taken;
    }

    /* Becomes the first kind from that on that has room for the counts. */
    void fit(unsigned first) {
        CounterCounts own = *this;

        convert_to(first);

        while (!format(kind).fits(count) && kind < kCounterKindsLength - 1) {
            unsigned next = kind + 1;

            *this = own;
            convert_to(next);
        }
    }

    /* Becomes a kind. */
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

    static const CounterFormat &format(unsigned kind) { return kCounterFormats.format[kind]; }

    /* Returns the number of the part of another kind in which a part ends. */
    static uint64_t convert(uint64_t part, unsigned from, unsigned to) {
        uint64_t n = format(from).parts();

        return ((part + 1) * format(to).parts() + n - 1) / n - 1;
    }
};

} // namespace limit_sliding
