/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/rings/used_units.hpp"

namespace limit_sliding {

/*
 * Records rejected requests in a history (ring_rule.hpp) as if they were admitted.
 *
 * A history may then hold more units than the limit.  In a log only the newest units up to the
 * limit matter: no request is admitted while they are in the window, and older units leave it
 * first.  So pages of older units are deleted.  In a counter each part holds up to the limit.
 *
 * The sum of two windows must not reach the number at which totals wrap.  So there may be no room
 * for a cost if the limit exceeds 200,000, and costs or bursts are a large part of the limit.
 */
class RingAttempts : private UsedUnits {
public:
    /* `now_ms` is the zone's time. */
    RingAttempts(const Claim &claim, uint64_t now_ms)
        : UsedUnits(claim, now_ms, false), held_(held_of(*claim.policy, claim.limit)) {}

    void record(uint64_t cost) {
        uint64_t refused_ms;
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = events_.obtain(&refused_ms);
            if (copy.kind == Copy::none || record_copy(copy, cost)) { return; }
        }
    }

private:
    /* The largest number of units in a window. */
    static constexpr uint64_t kMost = Event::kTotalMask / 2;

    static_assert(kNarrowMax <= kMost, "what is admitted has room");

    /* Returns the units to hold.  Policy::held is valid only for the zone's window. */
    static uint64_t held_of(const Policy &policy, uint64_t limit) {
        return policy.algorithm == Algorithm::kLog && policy.salt == 0
                   ? std::max(policy.held, limit)
                   : limit;
    }

    /* The following functions return false if the key has changed; the caller tries again. */

    bool record_copy(Copy copy, uint64_t cost) {
        if (!events_.open(copy)) { return false; }

        if (events_.is_idle()) {
            events_.forget();
            return false;
        }

        Events::Found oldest = events_.oldest();
        uint64_t taken = units_since(oldest);
        uint64_t room
            = std::min(held_ - std::min(held_, units_now()), kMost - std::min(kMost, taken));

        if (events_.is_torn() || !events_.is_same()) { return false; }

        cost = std::min(cost, room);

        return cost == 0 || record_open(oldest, cost);
    }

    bool record_open(const Events::Found &oldest, uint64_t cost) {
        const TickClock &clock = events_.clock();
        Event newest = events_.newest();
        uint64_t refused_ms = 0;

        if (events_.count() > 0 && !newest.is_closed() && events_.tick_of(newest) == clock.tick) {
            return events_.replace_newest(newest.with_total(newest.total() + cost))
                   == Events::kRecorded;
        }

        if (clock.is_log && events_.count() % kPageEvents == 0) {
            events_.give_up_pages(oldest.position, held_);
        }

        /* a full zone with WhenFull::kDeny has no slot for a page, so the cost is not recorded */
        return events_.append<true>(clock.tick, cost, &refused_ms, held_) != Events::kLost;
    }

    /* Returns the units recorded since the begin of the window, including refunded ones. */
    uint64_t units_since(const Events::Found &oldest) const {
        return oldest.position == events_.count() ? 0 : oldest.own + oldest.later;
    }

    /* Returns the units of the newest event if it is of the present tick. */
    uint64_t units_now() {
        if (events_.count() == 0 || events_.tick_of(events_.newest()) != events_.clock().tick) {
            return 0;
        }
        return events_.found(events_.count() - 1).own;
    }

    uint64_t held_;
};

} // namespace limit_sliding
