/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "core/policy/claim.hpp"
#include "core/rings/events.hpp"
#include "core/rings/refunds.hpp"

namespace limit_sliding {

/* The used units of a key under a limit: sums events, subtracts refunds and records costs. */
class UsedUnits {
public:
    /* `brief` is EventStore::is_brief. */
    UsedUnits(const Claim &claim, uint64_t now_ms, bool brief)
        : events_({claim.zone, claim.policy, counts_of(claim), brief,
                   TickClock(*claim.policy, now_ms,
                             !brief && claim.policy->algorithm == Algorithm::kLog)},
                  claim.hash),
          limit_(claim.limit) {}

    Events &events() { return events_; }

    /* Returns the limit in units x w. */
    uint64_t full() const { return limit_ * events_.clock().window_ms; }

    /* Returns true if a cost fits; else sets the oldest event that counts. */
    bool fits(uint64_t cost, Events::Found *oldest) {
        assert(limit_ >= 1 && limit_ <= kNarrowMax);

        if (cost > limit_) {
            *oldest = events_.oldest();
            return false;
        }

        uint64_t room = limit_ - cost;

        const Answer answer = decide_by_one(room, oldest);
        if (answer != kUnknown) { return answer == kFits; }

        *oldest = events_.oldest();
        room *= events_.clock().window_ms;

        uint64_t taken = events_.used(*oldest);

        return taken <= room || (events_.has_refunds() && less_refund(taken) <= room);
    }

    /* Returns the used units x w, less refunds. */
    uint64_t used(const Events::Found &oldest) {
        uint64_t taken = events_.used(oldest);
        return events_.has_refunds() ? less_refund(taken) : taken;
    }

    /* Returns the refunds of the open key. */
    Refunds refunds() const {
        EventStore store = events_.store();
        store.now = events_.clock();
        return Refunds(store, events_.refunds_hash());
    }

    /* Returns the mark of an admission: the tick of its event and the name of the history. */
    uint64_t mark(uint64_t tick) const {
        return events_.name() << kTickBits | (tick & Event::kTickMask);
    }

protected:
    Events events_;
    uint64_t limit_;

private:
    enum Answer { kUnknown, kFits, kFull };

    /* Tries to decide by one event.  In a short history this is the oldest event in the ring with
     * a predecessor.  In a longer log it is the event before the newest `room` events, since most
     * events have one unit.  If the event has expired, at most the units after it are used; it
     * must be recent, because totals wrap.  If it is the oldest one that counts, the used units
     * are known.  Returns kUnknown for keys with refunds. */
    Answer decide_by_one(uint64_t room, Events::Found *oldest) {
        const TickClock &clock = events_.clock();
        uint64_t count = events_.count();

        uint64_t back = events_.step();

        if (count == 0 || events_.has_refunds()) { return kUnknown; }

        if (clock.is_log && count > back) {
            if (count <= room) { return kUnknown; }

            back = room + 1;
        }

        uint64_t position = count - std::min(count, back);
        Event event = events_.at(position);

        if (!event.is_valid()) { return kUnknown; }

        uint64_t then = events_.tick_of(event);

        if (clock.is_over(then)) {
            bool is_recent = !clock.is_over(then + clock.span);

            return is_recent && units(event.total(), events_.newest().total()) <= room ? kFits
                                                                                       : kUnknown;
        }

        Event before = events_.before(position);

        if (before.is_valid() && !clock.is_over(events_.tick_of(before))) { return kUnknown; }

        *oldest = events_.found(position, event, before);

        return events_.used(*oldest) <= room * clock.window_ms ? kFits : kFull;
    }

    /* Subtracts refunds.  A brief store cannot read them, so the key then counts as torn. */
    uint64_t less_refund(uint64_t taken) {
        if (events_.store().is_brief) {
            events_.tear();
            return taken;
        }
        return taken - std::min(taken, refunded(refunds()));
    }

    /* Returns the refunds in units x w.  Out of line, because few keys have refunds, and with a
     * copied argument, so that values of other keys stay in registers. */
    [[gnu::noinline]] static uint64_t refunded(Refunds refunds) { return refunds.used(); }
};

} // namespace limit_sliding
