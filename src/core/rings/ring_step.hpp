/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/policy/policy.hpp"
#include "core/policy/tag_epoch.hpp"
#include "core/table/other_window_slots.hpp"
#include "core/table/ring.hpp"
#include "core/table/slot.hpp"
#include "core/table/tick_clock.hpp"
#include "core/table/zone.hpp"

namespace limit_sliding {

/* The step of the table (table.hpp) for slots with rings. */
class RingStep {
public:
    /* Makes a step for keys of a policy.  `page`: kLogRing events of a new page; null: no page. */
    RingStep(Zone *zone, const Policy &policy, const TickClock &clock, const Event *page = nullptr)
        : clock_(clock), zone_(zone), policy_(&policy), length_(RingSlots(zone).ring_length()),
          page_(page) {}

    uint64_t used(const Copy &copy) const {
        Ends ends = find_ends(copy);
        return ends.newest.is_valid() ? 1 + units(ends.before, ends.newest.total()) : 0;
    }

    /* Returns the used share of a limit, with all events in full. */
    double share(const Copy &copy, uint64_t limit) const {
        const uint64_t taken = used(copy);
        return taken == 0 ? 0 : static_cast<double>(taken - 1) / static_cast<double>(limit);
    }

    uint64_t expires_ms(const Copy &copy) const {
        Ends ends = find_ends(copy);
        if (!ends.newest.is_valid()) { return 0; }
        return clock_.until_over_ms(ends.newest.tick(clock_.tick));
    }

    /* Withdraws the copy.  A ring is not emptied in place, so the slot must be claimed again. */
    bool clear(Copy *copy) const {
        copy->store(Copy::kDead);
        return false;
    }

    /* Counts all events: the ticks of an unknown window tell their order, but not their age. */
    uint64_t used_at_all(const Copy &copy, unsigned) const {
        RingStep step = *this;
        step.clock_.span = uint64_t{1} << (kTickBits + 2);
        step.clock_.tick = (uint64_t{1} << kTickBits) + any_tick(copy);
        return step.used(copy);
    }

    /* Out of line, because few slots have another window. */
    [[gnu::noinline]] OtherWindowSlot other_window_slot(Copy copy) const {
        RingStep shared = *this;
        if (policy_->salt != 0) { shared.clock_ = clock_.of_window(zone_->window.ms); }
        return OtherWindowSlot::of(copy, shared, shared.clock_.epoch(),
                                   KeyEpochs{*policy_, clock_.now_ms});
    }

    void prepare(const Copy &copy) const { Ring(copy, length_).prepare(copy, page_); }

private:
    struct Ends {
        uint64_t before; /* total before the first event that counts, as far as known */
        Event newest;    /* not valid if no event counts */
    };

    /* Returns the bits of the tick of any event in the slot. */
    uint64_t any_tick(const Copy &copy) const {
        Ring ring(copy, length_);
        for (unsigned i = 0; i < length_; i++) {
            Event event = ring.load(i);
            if (ring.is_of_owner(event)) { return event.word & Event::kTickMask; }
        }
        return 0;
    }

    Ends find_ends(const Copy &copy) const {
        Ring ring(copy, length_);
        Event over = {};
        Event oldest = {};
        Event newest = {};
        bool is_full = true;

        for (unsigned i = 0; i < length_; i++) {
            Event event = ring.load(i);

            if (!ring.is_of_owner(event)) {
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

        /* a ring that is not full contains the first event */
        return {is_full ? oldest.total() : 0, newest};
    }

    /* Returns the later one of two events.  Either may be missing. */
    Event later(Event a, Event b) const {
        if (!a.is_valid() || !b.is_valid()) { return a.is_valid() ? a : b; }
        uint64_t a_tick = a.tick(clock_.tick);
        uint64_t b_tick = b.tick(clock_.tick);
        if (a_tick != b_tick) { return a_tick > b_tick ? a : b; }
        return units(a.total(), b.total()) <= Event::kTotalMask / 2 ? b : a;
    }

    TickClock clock_;
    Zone *zone_;
    const Policy *policy_;
    unsigned length_;
    const Event *page_;
};

} // namespace limit_sliding
