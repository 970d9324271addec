/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "core/base/atomics.hpp"

namespace limit_sliding {

/* A histogram in shared memory, or a copy.  `kBounds` has the inclusive upper bounds of the
 * buckets in ascending order; the last bucket has no bound.  Additions are exact, but a reader
 * gets no snapshot. */
template <const auto &kBounds>
struct Histogram {
    static constexpr size_t kBuckets = std::size(kBounds) + 1;

    uint64_t counts[kBuckets];
    uint64_t sum;

    void add(uint64_t value) {
        const auto *bound = std::lower_bound(std::begin(kBounds), std::end(kBounds), value);
        limit_sliding::add(&counts[bound - std::begin(kBounds)], 1);
        limit_sliding::add(&sum, value);
    }

    /* Calls function(n, bound) for each bound; n is the number of values up to the bound. */
    template <class Function>
    void for_each(Function function) const {
        uint64_t n = 0;
        for (size_t i = 0; i < kBuckets - 1; i++) {
            n += counts[i];
            function(n, uint64_t{kBounds[i]});
        }
    }

    uint64_t n() const {
        uint64_t n = 0;
        for (uint64_t count : counts) {
            n += count;
        }
        return n;
    }
};

/* Upper bounds for the duration of decisions, in ns. */
inline constexpr uint32_t kDecisionsNs[] = {
    250, 500, 1'000, 2'500, 5'000, 10'000, 25'000, 50'000, 100'000, 250'000, 1'000'000, 10'000'000};

using DecisionTimes = Histogram<kDecisionsNs>;

} // namespace limit_sliding
