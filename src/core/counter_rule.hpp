/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/counter_format.hpp"

namespace limit_sliding {

/* The counts of a key at one moment, in the format of a kind. */
struct CounterView {
    uint64_t part;    /* the newest, counted from the zone's time 0 */
    uint64_t counts;  /* up to that part */
    uint64_t elapsed; /* of that part, x n, 0 .. w - 1 */
};

/*
 * What a key has used by its counts, under one limit, as counter.hpp tells it.
 * The format is that of the counts; all is inline for those who know it when
 * they are compiled.
 */
struct CounterRule {
    uint64_t window_ms;
    uint64_t limit;
    bool strict;

    /* Returns request-milliseconds. */
    [[gnu::always_inline]] uint64_t used(const CounterFormat &format, const CounterView &v) const {
        uint64_t all = format.total(v.counts) * window_ms;

        if (strict || format.is_string()) { return all; }

        uint64_t oldest = format.oldest(v.counts);

        return oldest == 0 ? all : all - std::min(oldest * v.elapsed, fading_max(format));
    }

    /* Returns the ms until used <= room, the requests that may still count;
     * that it is not so yet is known.  `used` only falls while nothing is
     * admitted.  It happens while some part is the oldest one, as soon as that
     * has faded enough, or when it ends. */
    [[gnu::always_inline]] uint64_t wait_ms(const CounterFormat &format, const CounterView &v,
                                            uint64_t room, uint64_t now_ms) const {
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
    /* Returns the request-milliseconds that the oldest part may fade. */
    uint64_t fading_max(const CounterFormat &format) const {
        return format.parts() == 1 ? UINT64_MAX : limit / format.parts() * window_ms;
    }
};

} // namespace limit_sliding
