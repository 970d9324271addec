/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/atomics.hpp"
#include "core/claim.hpp"
#include "core/credits.hpp"
#include "core/events.hpp"

namespace limit_sliding {

/* What a key's events add up to, under a limit: what is used, less credits, and
 * whether a cost fits.  How costs are recorded. */
class Tally {
public:
    /* `brief` is of EventStore. */
    Tally(const Claim &claim, uint64_t now_ms, bool brief)
        : events_(
            {claim.zone, claim.policy, counts_of(claim), brief,
             Clock(*claim.policy, now_ms, !brief && claim.policy->algorithm == Algorithm::kLog)},
            claim.hash),
          limit_(claim.limit) {}

    Events &events() { return events_; }
    uint64_t limit() const { return limit_; }

    /* Returns the units x w of the limit. */
    uint64_t full() const { return limit_ * events_.clock().window_ms; }

    /* Decides.  If it does not fit, finds the oldest event that counts. */
    bool fits(uint64_t cost, Events::Found *oldest) {
        if (cost > limit_) {
            *oldest = events_.oldest();
            return false;
        }

        uint64_t room = limit_ - cost;

        switch (ask_one(room, oldest)) {
        case kFits:
            return true;
        case kFull:
            return false;
        default:
            break;
        }

        *oldest = events_.oldest();
        room *= events_.clock().window_ms;

        uint64_t taken = events_.used(*oldest);

        return taken <= room || (events_.has_credits() && less_credit(taken) <= room);
    }

    /* Returns the units x w that are used, less credits. */
    uint64_t used(const Events::Found &oldest) {
        uint64_t taken = events_.used(oldest);

        return events_.has_credits() ? less_credit(taken) : taken;
    }

    /* Returns the units that are used, rounded up. */
    uint64_t whole_used(const Events::Found &oldest) { return whole(used(oldest)); }

    /* As above, but less these credits. */
    uint64_t whole_used(const Events::Found &oldest, const Credits::Snapshot &parts) const {
        uint64_t taken = events_.used(oldest);

        return whole(taken - std::min(taken, parts.used(events_.clock())));
    }

    /* Returns the credits of the key as it is open. */
    Credits credits() const {
        EventStore store = events_.store();

        store.now = events_.clock();

        return Credits(store, events_.credits_hash());
    }

    /* Records a cost that fits. */
    Events::Recorded record(uint64_t cost, uint64_t *refused_ms) {
        Event newest = events_.newest();
        uint64_t tick = events_.clock().tick;

        if (events_.count() > 0 && !newest.is_closed() && events_.tick_of(newest) == tick) {
            return events_.replace_newest(newest.with_total(newest.total() + cost));
        }

        return events_.append(tick, cost, refused_ms);
    }

    /* Returns what an admission is found by again: the tick of its event, and
     * the name of its history. */
    uint64_t mark(uint64_t tick) const {
        return events_.name() << kTickBits | (tick & Event::kTickMask);
    }

protected:
    Events events_;
    uint64_t limit_;

private:
    uint64_t whole(uint64_t taken) const {
        uint64_t window_ms = events_.clock().window_ms;

        return (taken + window_ms - 1) / window_ms;
    }

    enum Told { kNothing, kFits, kFull };

    /* Asks one event, which mostly tells enough: the oldest one in the ring that
     * has another before it or, of a log with more events, the one before the
     * newest `room`, as most events are of one unit.  If it is over, no more is
     * used than came later; it must be recent, as totals wrap.  If it is the
     * oldest event that counts, that is what has to be known.  Nothing may have
     * been given back. */
    Told ask_one(uint64_t room, Events::Found *oldest) {
        const Clock &clock = events_.clock();
        uint64_t count = events_.count();

        uint64_t back = events_.step();

        if (count == 0 || events_.has_credits()) { return kNothing; }

        if (clock.is_log && count > back) {
            if (count <= room) { return kNothing; }

            back = room + 1;
        }

        uint64_t position = count - std::min(count, back);
        Event event = events_.at(position);

        if (!event.is_valid()) { return kNothing; }

        uint64_t then = events_.tick_of(event);

        if (clock.is_over(then)) {
            bool is_recent = !clock.is_over(then + clock.span);

            return is_recent && units(event.total(), events_.newest().total()) <= room ? kFits
                                                                                       : kNothing;
        }

        Event before = events_.before(position);

        if (before.is_valid() && !clock.is_over(events_.tick_of(before))) { return kNothing; }

        *oldest = events_.found(position, event, before);

        return events_.used(*oldest) <= room * clock.window_ms ? kFits : kFull;
    }

    /* Subtracts credits, which are not known to those who stay in the key's own
     * ring. */
    uint64_t less_credit(uint64_t taken) {
        if (events_.store().is_brief) {
            events_.tear();
            return taken;
        }

        return taken - std::min(taken, credited(credits()));
    }

    /* Sums credits up.  It is out of line, as few keys have credits, and takes
     * a copy, so that the others' events stay in registers. */
    [[gnu::noinline]] static uint64_t credited(Credits credits) { return credits.used(); }
};

} // namespace limit_sliding
