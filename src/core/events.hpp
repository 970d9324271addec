/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_CORE_EVENTS_HPP
#define LIMIT_SLIDING_CORE_EVENTS_HPP

#include <cstdint>

#include "limiter.h"
#include "ring.hpp"
#include "ring_step.hpp"
#include "table.hpp"
#include "zone.hpp"

namespace limit_sliding {

/*
 * A key's events of one window, as they are read.
 *
 * The key's slot has a ring of its newest events; its state is their number,
 * and a name that the key has from this slot's first event on.
 *
 * An event's units are its total less that of the event before it.  When the
 * latter's place in the ring is needed, an event that still counts is copied
 * to another slot, found by the key's name and the event's number, and with it
 * the one before or, if that belongs into another slot, its total: the slot's
 * state is 1 + the total before its first event.  So a key takes a slot more
 * for every ring's length of events; these slots expire, and are evicted, as
 * any other, and what is missing there is over.
 */
class Events {
protected:
    /* `brief` to stay in the key's own ring: what is elsewhere makes it torn */
    Events(const limit_sliding_claim_t &claim, uint64_t now_ms, bool brief)
        : zone_(claim.zone), counts_(counts_of(claim)), hash_(claim.hash),
          brief_(brief), now_(*claim.policy, now_ms), clock_(now_)
    {
    }

    static constexpr unsigned kCountBits = 36;
    static constexpr uint64_t kCountMask = (1ULL << kCountBits) - 1;

    Table<RingSlots> table(uint64_t hash) const
    {
        return Table<RingSlots>(RingSlots(zone_), zone_->pairs, counts_, hash,
                                now_.epoch());
    }

    unsigned length() const { return RingSlots(zone_).ring_length(); }

    RingStep step() const { return RingStep(now_, length()); }

    /* Opens the key, if there is one, and has `visit` look at it whole. */
    template <class Visit>
    void read(const Visit &visit)
    {
        do {
            Copy copy = table(hash_).look();

            if (copy.kind == Copy::none) {
                open_none();
            } else if (!open(copy)) {
                torn_ = true;
                continue;
            }

            visit();
            torn_ |= copy.kind != Copy::none && !is_same();
        } while (torn_);
    }

    void open_none()
    {
        clock_ = now_;
        torn_ = false;
        count_ = 0;
        newest_ = {};
        old_ = Ring();
    }

    /* False: it has changed meanwhile, the caller looks again. */
    bool open(Copy copy)
    {
        open_none();
        copy_ = copy;
        ring_ = Ring(copy, length());
        count_ = copy.bare_state() & kCountMask;

        while (ring_.is_event(ring_.load(count_), count_)) {
            if (!advance()) {
                return false;
            }
        }

        if (count_ == 0) {
            return true;
        }

        newest_ = ring_.load(count_ - 1);

        if (!ring_.is_event(newest_, count_ - 1)) {
            return false;
        }

        clock_.advance_to(newest_.tick(now_.tick));

        return true;
    }

    /* Counts an event more. */
    bool advance()
    {
        count_++;

        return copy_.store(copy_.bare_state() + 1);
    }

    /*
     * Is no event more counted than when the key was opened?  Then all that was
     * read until now is of that lap: at most the next one has taken its place.
     * Two laps later the events themselves would look the same.
     */
    bool is_same() const { return copy_.is_same(); }

    /* For so long that the ring is not worth keeping, nor safe to. */
    bool is_idle() const
    {
        constexpr uint64_t kIdle = 1 << 20;

        return count_ > 0
               && newest_.tick(now_.tick) + clock_.span + kIdle < clock_.tick;
    }

    /*
     * The event of that number, below count_; not valid if it is missing.
     * The oldest one in the ring only tells the total before the next.
     */
    Event at(uint64_t position)
    {
        if (position + 1 == count_) {
            return newest_;
        }

        if (position + length() > count_) {
            return in_ring(position);
        }

        return open_old(position) ? in_old(position) : Event{};
    }

    /* Sets torn_ if the event has just been replaced. */
    Event in_ring(uint64_t position)
    {
        Event event = ring_.load(position);

        if (!ring_.is_event(event, position)) {
            torn_ = true;
            return {};
        }

        return event;
    }

    Event in_old(uint64_t position) const
    {
        Event event = old_.load(position);

        return old_.is_event(event, position) ? event : Event{};
    }

    /* Opens the slot that this event was copied to; false: there is none. */
    bool open_old(uint64_t position)
    {
        uint64_t number = position / length();

        if (brief_) {
            torn_ = true;
            return false;
        }

        if (old_.is_none() || old_number_ != number) {
            Copy copy = table(old_hash(number)).look();

            if (copy.kind == Copy::none) {
                return false;
            }

            old_ = Ring(copy, length());
            old_before_ = copy.bare_state() - 1;
            old_number_ = number;
        }

        return true;
    }

    /* What was used before an event that is not missing. */
    uint64_t total_before(uint64_t position)
    {
        if (position == 0) {
            return 0;
        }

        if (position + length() > count_) {
            return in_ring(position - 1).total();
        }

        if (!open_old(position)) {
            return 0;
        }

        return position % length() == 0 ? old_before_
                                        : in_old(position - 1).total();
    }

    /* The key of a slot of older events; a finalizer of murmur's kind. */
    uint64_t old_hash(uint64_t number) const
    {
        uint64_t name = copy_.bare_state() >> kCountBits;
        uint64_t h = hash_ ^ (name << kCountBits | number) * 0x9e3779b97f4a7c15;

        h = (h ^ h >> 33) * 0xff51afd7ed558ccd;
        h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53;

        return h ^ h >> 33;
    }

    /*
     * The number of the first event that `holds`, which then holds for all
     * later ones; count_ if none.  A missing event is one that does not.
     */
    template <class Holds>
    uint64_t first(const Holds &holds)
    {
        uint64_t high = count_;
        uint64_t step = length() - 1;

        while (high > 0) {
            uint64_t low = high > step ? high - step : 0;
            Event event = at(low);

            if (!event.is_valid() || !holds(event)) {
                return first_between(low + 1, high, holds);
            }

            high = low;
            step *= 2;
        }

        return 0;
    }

    template <class Holds>
    uint64_t first_between(uint64_t low, uint64_t high, const Holds &holds)
    {
        while (low < high) {
            uint64_t middle = low + (high - low) / 2;
            Event event = at(middle);

            if (event.is_valid() && holds(event)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }

        return low;
    }

    /* Units x w. */
    uint64_t used()
    {
        uint64_t position = first([&](Event event) {
            return !clock_.is_over(event.tick(now_.tick));
        });

        if (position == count_) {
            return 0;
        }

        Event event = at(position);
        uint64_t before = total_before(position);

        if (event.tick(now_.tick) + clock_.span > clock_.tick) {
            return units(before, newest_.total()) * clock_.window_ms;
        }

        return units(event.total(), newest_.total()) * clock_.window_ms
               + units(before, event.total()) * clock_.weight;
    }

    /*
     * Milliseconds until used <= room, less than now.  What remains when the
     * first event after which `room` units or less came begins to be forgotten
     * is `after` + its own; it has to lose what is too much.
     */
    uint64_t wait_ms(uint64_t room)
    {
        uint64_t total = newest_.total();
        uint64_t position = first([&](Event event) {
            return !clock_.is_over(event.tick(now_.tick))
                   && units(event.total(), total) <= room;
        });
        Event event = at(position);
        uint64_t own = units(total_before(position), event.total());
        uint64_t rest = units(event.total(), total) + own;
        uint64_t lost = clock_.window_ms;

        if (own > 0 && rest > room) {
            lost = ((rest - room) * clock_.window_ms + own - 1) / own;
        }

        return clock_.until_lost_ms(event.tick(now_.tick), lost);
    }

    limit_sliding_zone_t *zone_;
    limit_sliding_slot_counts_t *counts_;
    uint64_t hash_;
    bool brief_;
    Clock now_;

    /* The key as it was opened last. */
    Clock clock_;
    Copy copy_ = {};
    Ring ring_;
    uint64_t count_ = 0;
    Event newest_ = {};
    Ring old_; /* the slot of older events that was opened last */
    uint64_t old_before_ = 0;
    uint64_t old_number_ = 0;
    bool torn_ = false;
};

} // namespace limit_sliding

#endif
