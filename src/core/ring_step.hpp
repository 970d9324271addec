/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/clock.hpp"
#include "core/ring.hpp"
#include "core/ring_debt.hpp"
#include "core/slot.hpp"

namespace limit_sliding {

/* Answers what the table asks about slots with rings. */
class RingStep {
public:
    /* `page` has the events of a page that is to be made, kLogRing of them. */
    RingStep(const Clock &clock, unsigned length, const Event *page = nullptr)
        : clock_(clock), length_(length), page_(page) {}

    uint64_t used(const Copy &copy) const {
        Ends ends = find_ends(copy);
        uint64_t taken = ends.newest.is_valid() ? 1 + units(ends.before, ends.newest.total()) : 0;

        return ends.owes && !clock_.is_over(ends.debt.end) ? taken + ends.debt.units(clock_)
                                                           : taken;
    }

    uint64_t expires_ms(const Copy &copy) const {
        Ends ends = find_ends(copy);

        if (ends.owes && !clock_.is_over(ends.debt.end)) {
            return clock_.until_over_ms(ends.debt.end);
        }

        if (!ends.newest.is_valid()) { return 0; }

        return clock_.until_over_ms(ends.newest.tick(clock_.tick));
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
        bool owes;
        RingDebt debt;
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

        Event last = ring.load((copy.bare_state() & kCountMask) - 1);
        Event before = newest.is_valid() ? newest : over;

        if (ring.is_debt(last) && before.is_valid()) {
            RingDebt debt = RingDebt::of(last, before.tick(clock_.tick), clock_);

            return {over.is_valid() ? over.total() : oldest.total(), newest, true, debt};
        }

        if (over.is_valid()) { return {over.total(), newest, false, {}}; }

        /* a ring that is not full has the key's first event */
        return {is_full ? oldest.total() : 0, newest, false, {}};
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
