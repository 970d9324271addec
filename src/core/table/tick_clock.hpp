/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cassert>
#include <cstdint>

#include "core/policy/policy.hpp"
#include "core/policy/tag_epoch.hpp"
#include "core/table/ring.hpp"

namespace limit_sliding {

/* One moment for algorithm=log and for counters with precision=n.  Time is cut into ticks of 1 ms
 * (log) or w/n (counter).  An event counts in full while it is less than `span` ticks old.  At
 * this age a log drops the event, a counter counts `weight` / w of its units, and a strict counter
 * counts it in full until the end of the tick. */
struct TickClock {
    uint64_t window_ms;
    uint64_t span;
    bool is_log;
    bool is_strict;
    uint64_t now_ms;
    uint64_t tick;
    uint64_t weight;

    TickClock() = default;

    TickClock(const Policy &policy, uint64_t now)
        : TickClock(policy, now, policy.algorithm == Algorithm::kLog) {}

    /* `of_log` equals policy.algorithm == kLog, for callers that know it at compile time. */
    TickClock(const Policy &policy, uint64_t now, bool of_log)
        : window_ms(policy.window_ms), span(of_log ? policy.window_ms : policy.precision),
          is_log(of_log), is_strict(policy.strict) {
        set(now);
    }

    void set(uint64_t now) {
        assert(window_ms != 0 && span != 0 && span <= window_ms);
        now_ms = now;
        tick = is_log ? now : now * span / window_ms;
        weight = is_log ? 0 : window_ms - now * span % window_ms;
    }

    TickClock behind() const {
        TickClock clock = *this;
        clock.set(behind_ms(now_ms));
        return clock;
    }

    /* Advances to a tick that another worker's clock has reached. */
    void advance_to(uint64_t other) {
        if (other > tick) {
            tick = other;
            weight = is_log ? 0 : window_ms;
        }
    }

    bool is_over(uint64_t then) const { return then + span < tick + is_log; }

    /* Returns the weight x w of an event that has not expired. */
    uint64_t weight_of(uint64_t then) const {
        return then + span > tick || is_strict ? window_ms : weight;
    }

    /* An epoch for keys with the zone's window lasts 2^kEpochShift ticks. */
    static constexpr unsigned kEpochShift = kTickBits - 2;

    uint64_t epoch() const { return tick >> kEpochShift; }

    TickClock of_window(uint64_t other_ms) const {
        TickClock clock = *this;
        clock.window_ms = other_ms;
        clock.span = is_log ? other_ms : span;
        clock.set(now_ms);
        return clock;
    }

    /* Returns the ms until an event of `own` units has lost `lost` units.  `own` may be 0 if the
     * event was read while it changed. */
    uint64_t until_lost_ms(uint64_t then, uint64_t own, uint64_t lost) const {
        if (is_log) { return then + span - now_ms; }
        uint64_t elapsed = is_strict || own == 0 ? window_ms : (lost * window_ms + own - 1) / own;
        return ((then + span) * window_ms + elapsed + span - 1) / span - now_ms;
    }

    /* Returns the ms until an event expires. */
    uint64_t until_over_ms(uint64_t then) const { return until_lost_ms(then, 0, 0); }
};

} // namespace limit_sliding
