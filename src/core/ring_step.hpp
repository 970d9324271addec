/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/policy.hpp"
#include "core/ring.hpp"
#include "core/slot.hpp"

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

    /* Returns what an event counts that is not over, x w. */
    uint64_t weight_of(uint64_t then) const {
        return then + span > tick || is_strict ? window_ms : weight;
    }

    uint64_t epoch() const { return tick >> (kTickBits - 2); }

    /* Returns the ms until an event of so many units has lost at least `lost` of
     * them.  What was read while it changed may have an event of no units. */
    uint64_t until_lost_ms(uint64_t then, uint64_t own, uint64_t lost) const {
        if (is_log) { return then + span - now_ms; }

        uint64_t elapsed = is_strict || own == 0 ? window_ms : (lost * window_ms + own - 1) / own;

        return ((then + span) * window_ms + elapsed + span - 1) / span - now_ms;
    }

    /* Returns the ms until an event is over. */
    uint64_t until_over_ms(uint64_t then) const { return until_lost_ms(then, 0, 0); }
};

/* Answers what the table asks about slots with rings. */
class RingStep {
public:
    /* `page` has the events of a page that is to be made, kLogRing of them. */
    RingStep(const Clock &clock, unsigned length, const Event *page = nullptr)
        : clock_(clock), length_(length), page_(page) {}

    uint64_t used(const Copy &copy) const {
        Ends ends = find_ends(copy);

        return ends.newest.is_valid() ? 1 + units(ends.before, ends.newest.total()) : 0;
    }

    uint64_t expires_ms(const Copy &copy) const {
        Event newest = find_ends(copy).newest;

        if (!newest.is_valid()) { return 0; }

        return clock_.until_over_ms(newest.tick(clock_.tick));
    }

    /* Withdraws the copy, as a ring is not emptied in use: its slot is claimed
     * anew. */
    bool clear(Copy *copy) const {
        copy->store(Copy::kDead);
        return false;
    }

    void prepare(const Copy &copy) const {
        Ring ring(copy, length_);

        if (page_ != nullptr) {
            ring.fill(copy, page_);
        } else {
            ring.wipe(copy);
        }
    }

private:
    struct Ends {
        uint64_t before; /* the first event that counts, as far as is known */
        Event newest;    /* not valid: none counts */
    };

    Ends find_ends(const Copy &copy) const {
        Ring ring(copy, length_);
        Event over = {};
        Event oldest = {};
        Event newest = {};
        bool is_full = true;

        for (unsigned i = 0; i < length_; i++) {
            Event event = ring.load(i);

            if (!ring.is_own(event)) {
                is_full = false;
            } else if (clock_.is_over(event.tick(clock_.tick))) {
                over = later(over, event);
            } else {
                bool is_first = !oldest.is_valid() || later(oldest, event).word == oldest.word;

                newest = later(newest, event);
                oldest = is_first ? event : oldest;
            }
        }

        if (over.is_valid()) { return {over.total(), newest}; }

        /* a ring that is not full has the key's first event */
        return {is_full ? oldest.total() : 0, newest};
    }

    /* Returns the later one of two events, of which one may be missing. */
    Event later(Event a, Event b) const {
        if (!a.is_valid() || !b.is_valid()) { return a.is_valid() ? a : b; }

        uint64_t a_tick = a.tick(clock_.tick);
        uint64_t b_tick = b.tick(clock_.tick);

        if (a_tick != b_tick) { return a_tick > b_tick ? a : b; }

        return units(a.total(), b.total()) <= Event::kTotalMask / 2 ? b : a;
    }

    Clock clock_;
    unsigned length_;
    const Event *page_;
};

} // namespace limit_sliding
