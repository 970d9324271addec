/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/epoch.hpp"
#include "core/policy.hpp"
#include "core/ring.hpp"

namespace limit_sliding {

/* One moment, as algorithm=log and counter with precision=n see it.  Time is
 * cut into ticks: of one ms, or of w/n.  An event counts fully while it is less
 * than `span` ticks old.  At that age a log forgets it, and a counter forgets
 * it little by little, by `weight` / w; a strict one forgets it all at once when
 * it is older. */
struct Clock {
    uint64_t window_ms;
    uint64_t span;
    bool is_log;
    bool is_strict;
    uint64_t now_ms;
    uint64_t tick;
    uint64_t weight;

    Clock() = default;

    Clock(const Policy &policy, uint64_t now)
        : Clock(policy, now, policy.algorithm == Algorithm::kLog) {}

    /* `of_log` says whether the policy is a log's, which callers may know. */
    Clock(const Policy &policy, uint64_t now, bool of_log)
        : window_ms(policy.window_ms), span(of_log ? policy.window_ms : policy.precision),
          is_log(of_log), is_strict(policy.strict) {
        set(now);
    }

    void set(uint64_t now) {
        now_ms = now;
        tick = is_log ? now : now * span / window_ms;
        weight = is_log ? 0 : window_ms - now * span % window_ms;
    }

    /* Returns the time of a worker whose clock may be behind.  For its sake
     * nothing is taken for over before it is so by that time. */
    Clock behind() const {
        constexpr uint64_t kBehindMs = 64;
        Clock clock = *this;

        clock.set(now_ms - std::min(now_ms, kBehindMs));

        return clock;
    }

    /* Advances to a time that the clock of another worker has reached. */
    void advance_to(uint64_t other) {
        if (other > tick) {
            tick = other;
            weight = is_log ? 0 : window_ms;
        }
    }

    bool is_over(uint64_t then) const { return then + span < tick + is_log; }

    /* Returns for how many ticks an event fades after the span. */
    uint64_t fading() const { return is_log ? 0 : 1; }

    /* Returns what an event counts that is not over, x w. */
    uint64_t weight_of(uint64_t then) const {
        return then + span > tick || is_strict ? window_ms : weight;
    }

    /* Epochs of the zone's window. */
    static constexpr unsigned kEpochShift = kTickBits - 2;

    uint64_t epoch() const { return tick >> kEpochShift; }

    /* Returns the clock of another window. */
    Clock of_window(uint64_t other_ms) const {
        Clock clock = *this;

        clock.window_ms = other_ms;
        clock.span = is_log ? other_ms : span;
        clock.set(now_ms);

        return clock;
    }

    /* Returns the ms until an event of so many units has lost at least `lost` of
     * them.  What was read while it changed may have an event of no units. */
    uint64_t until_lost_ms(uint64_t then, uint64_t own, uint64_t lost) const {
        if (is_log) { return then + span - now_ms; }

        uint64_t elapsed = is_strict || own == 0 ? window_ms : (lost * window_ms + own - 1) / own;

        return ((then + span) * window_ms + elapsed + span - 1) / span - now_ms;
    }

    /* Returns the ms until a tick to come. */
    uint64_t until_ms(uint64_t then) const {
        return is_log ? then - now_ms : (then * window_ms + span - 1) / span - now_ms;
    }

    /* Returns the ms until an event is over. */
    uint64_t until_over_ms(uint64_t then) const { return until_lost_ms(then, 0, 0); }
};

} // namespace limit_sliding
