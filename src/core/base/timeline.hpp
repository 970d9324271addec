/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/base/atomics.hpp"

namespace limit_sliding {

/* The periods of a timeline, the present one included: ten minutes. */
constexpr uint64_t kPeriodMs = 10 * 1000;
constexpr size_t kPeriods = 60;

/* The increases of some counters in each of the last periods, in zeroed shared memory.  Requests
 * pay nothing for a timeline: one worker records the counters at the end of each period, and
 * reports record them, too.  One compare-and-swap takes each increase, so concurrent records
 * count an increase once.  All processes have the same monotonic clock, but for a few ms. */
template <size_t kCounters>
class Timeline {
public:
    /* Records the present values of the counters. */
    void record(const uint64_t (&values)[kCounters], uint64_t now_ms) {
        begin(now_ms / kPeriodMs);

        /* The periods since the last record share the increase.  Usually it is of one period, the
         * one in the middle, because the timer fires shortly after the end of a period.  The first
         * record, and one after a gap as long as the timeline, know no period of the increase: the
         * counters may be of a time in which nobody recorded them. */
        const uint64_t then_ms = shared(&recorded_ms_).exchange(now_ms);
        const uint64_t ms = now_ms - std::min(now_ms, then_ms);
        const bool is_known = then_ms != 0 && ms < (kPeriods - 1) * kPeriodMs;
        const uint64_t n = is_known ? std::max<uint64_t>(ms / kPeriodMs, 1) : 0;

        for (size_t i = 0; i < kCounters; i++) {
            /* another process may have recorded later values meanwhile */
            uint64_t before = load(&values_[i]);
            while (before < values[i]
                   && !shared(&values_[i]).compare_exchange_strong(before, values[i])) {}
            const uint64_t rise = values[i] - std::min(values[i], before);

            for (uint64_t part = 0; rise != 0 && part < n; part++) {
                const uint64_t middle_ms = now_ms - ms * (2 * part + 1) / (2 * n);
                row(middle_ms / kPeriodMs)[i].fetch_add(
                    static_cast<uint32_t>(rise * (part + 1) / n - rise * part / n),
                    std::memory_order_relaxed);
            }
        }
    }

    /* Returns the number of periods that the timeline has, up to the one that has begun last. */
    size_t size() const {
        const uint64_t first = load(&first_);
        return first == 0 ? 0 : std::min<uint64_t>(load(&last_) - first + 1, kPeriods);
    }

    /* Returns the increase of a counter in a period, of which 0 is the oldest. */
    uint32_t increase(size_t counter, size_t period) const {
        return row(load(&last_) - size() + 1 + period)[counter].load(std::memory_order_relaxed);
    }

    /* Returns the ms since the begin of the last period. */
    uint64_t age_ms(uint64_t now_ms) const {
        return now_ms - std::min(now_ms, load(&last_) * kPeriodMs);
    }

private:
    using Row = Atomic<uint32_t>[kCounters];

    Row &row(uint64_t period) const { return const_cast<Row &>(rows_[period % kPeriods]); }

    /* Begins a period: clears its row, and those of skipped periods.  One process does so; if it
     * dies, these rows may keep increases of ten minutes ago, and if it stands still, they may lose
     * what others record meanwhile. */
    void begin(uint64_t period) {
        uint64_t last = load(&last_);
        if (last >= period || !shared(&last_).compare_exchange_strong(last, period)) { return; }

        if (last == 0) { shared(&first_).store(period); }

        for (uint64_t i = std::max(last + 1, period - std::min<uint64_t>(period, kPeriods - 1));
             i <= period; i++) {
            for (auto &increase : row(i)) {
                increase.store(0, std::memory_order_relaxed);
            }
        }
    }

    uint64_t first_;             /* number of the first period; 0: nothing is recorded */
    uint64_t last_;              /* number of the last period */
    uint64_t recorded_ms_;       /* time of the last record */
    uint64_t values_[kCounters]; /* counters at that time */
    Row rows_[kPeriods];
};

} // namespace limit_sliding
