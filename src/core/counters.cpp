/* Copyright (C) the limit_sliding authors */

#include "core/counters.hpp"

#include "core/atomics.hpp"

namespace limit_sliding {

Counters Counters::sum(const Counters *counters, size_t n) {
    constexpr size_t kWords = sizeof(Counters) / sizeof(uint64_t);

    Counters sum = {};
    auto *total = reinterpret_cast<uint64_t *>(&sum);

    for (size_t i = 0; i < n; i++) {
        auto *words = reinterpret_cast<const uint64_t *>(&counters[i]);

        for (size_t j = 0; j < kWords; j++) {
            total[j] += load(&words[j]);
        }
    }

    return sum;
}

} // namespace limit_sliding
