/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/clock.hpp"
#include "core/epoch.hpp"
#include "core/others.hpp"
#include "core/policy.hpp"
#include "core/ring.hpp"
#include "core/ring_debt.hpp"
#include "core/slot.hpp"
#include "core/zone_slots.hpp"

namespace limit_sliding {

/* Answers what the table asks about slots with rings. */
class RingStep {
public:
    /* For keys of a policy; `page` has the events of a page that is to be made,
     * kLogRing of them. */
    RingStep(Zone *zone, const Policy &policy, const Clock &clock, const Event *page = nullptr)
        : clock_(clock), zone_(zone), policy_(&policy), length_(RingSlots(zone).ring_length()),
          page_(page) {}

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

    /* Returns by how many epochs a debt of a key that has a window of its own is
     * ahead. */
    uint64_t ahead(const Copy &copy) const {
        Ring ring(copy, length_);
        uint64_t count = copy.bare_state() & kCountMask;
        Event last = ring.load(count - 1);
        Event before = ring.load(count - 2);

        if (!ring.is_debt(last) || !ring.is_event(before, count - 2)) { return 0; }

        uint64_t end = RingDebt::of(last, before.tick(clock_.tick), clock_).end;

        return end <= clock_.tick ? 0
                                  : epochs().within(clock_.until_ms(end), tag::digits(copy.tag));
    }

    /* Ticks of an unknown window only tell which event is later: none is over. */
    uint64_t used_at_all(const Copy &copy, unsigned) const {
        RingStep step = *this;

        step.clock_.span = uint64_t{1} << (kTickBits + 2);
        step.clock_.tick = (uint64_t{1} << kTickBits) + any_tick(copy);

        return step.used(copy);
    }

    /* Few slots are asked for, so all is made anew each time. */
    Others<RingStep> others() const {
        RingStep shared = *this;

        if (policy_->salt != 0) { shared.clock_ = clock_.of_window(zone_->window.ms); }

        return {shared, shared.clock_.epoch(), epochs()};
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

    OwnEpochs epochs() const { return {*policy_, clock_.now_ms}; }

    /* Returns the tick of some event of the slot's owner, as far as its word tells. */
    uint64_t any_tick(const Copy &copy) const {
        Ring ring(copy, length_);

        for (unsigned i = 0; i < length_; i++) {
            Event event = ring.load(i);

            if (ring.is_own(event)) { return event.word & Event::kTickMask; }
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
    Zone *zone_;
    const Policy *policy_;
    unsigned length_;
    const Event *page_;
};

} // namespace limit_sliding
