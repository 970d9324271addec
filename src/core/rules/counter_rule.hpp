/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "core/rules/counter_format.hpp"

namespace limit_sliding {

/* The counts of a key at one moment, in the format of some kind. */
struct CounterView {
    uint64_t part;    /* number of the newest part, counted from the zone's time 0 */
    uint64_t counts;  /* encoded counts of the newest part and the n before */
    uint64_t elapsed; /* elapsed ms of the newest part, x n, 0 .. w - 1 */
};

/* The rule of the counter under one limit, see counter.hpp.  All functions are inline for callers
 * with a constant format. */
struct CounterRule {
    uint64_t window_ms;
    uint64_t limit;
    bool strict;

    [[gnu::always_inline]] uint64_t used(const CounterFormat &format, const CounterView &v) const {
        uint64_t all = format.total(v.counts) * window_ms;
        if (strict || format.is_string()) { return all; }
        uint64_t oldest = format.oldest(v.counts);
        return oldest == 0 ? all : all - std::min(oldest * v.elapsed, fading_max(format));
    }

    /* Returns the ms until used <= room; the counts must add up to more.  The wait ends while the
     * part from find() is the oldest: when it has faded enough, or when it leaves the window.  The
     * caller has to round counts up that will be rounded meanwhile. */
    [[gnu::always_inline]] uint64_t wait_ms(const CounterFormat &format, const CounterView &v,
                                            uint64_t room, uint64_t now_ms) const {
        assert(format.total(v.counts) > room);

        uint64_t n = format.parts();
        uint64_t count, newer;
        uint64_t older = format.find(v.counts, room, &count, &newer);
        uint64_t elapsed = window_ms;

        if (!strict && !format.is_string()) {
            uint64_t all = newer + count;
            uint64_t surplus = (all - room) * window_ms;

            if (surplus <= fading_max(format)) { elapsed = (surplus + count - 1) / count; }
        }

        return ((v.part + older) * window_ms + elapsed + n - 1) / n - now_ms;
    }

private:
    /* Returns the most request-milliseconds by which the oldest part may fade. */
    uint64_t fading_max(const CounterFormat &format) const {
        return format.parts() == 1 ? UINT64_MAX : limit / format.parts() * window_ms;
    }
};

} // namespace limit_sliding
