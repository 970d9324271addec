/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/owing.hpp"
#include "core/tally.hpp"

namespace limit_sliding {

/*
 * Records rejected requests in a history (history.hpp), as if they had been
 * admitted.
 *
 * What is held of a key then may be more than its limit.  Of a log no more than the
 * newest units up to a limit matter: as long as these are in the window, nothing is
 * admitted, and those before them leave it first.  So their pages are given up.  Of
 * a counter each part has up to the limit.
 *
 * Events in two windows must not add up to as much as totals wrap at (Tally), so
 * there may be no room for a cost: with a limit above 200,000 and costs or bursts
 * that are a large part of it.
 */
class RingAttempts : private Tally {
public:
    /* `now_ms` is of the zone's time. */
    RingAttempts(const Claim &claim, uint64_t now_ms)
        : Tally(claim, now_ms, false), held_(held_of(*claim.policy, claim.limit)) {}

    void record(uint64_t cost) {
        uint64_t refused_ms;

        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = events_.obtain(&refused_ms);

            if (copy.kind == Copy::none || record_copy(copy, cost)) { return; }
        }
    }

private:
    /* Units of one window. */
    static constexpr uint64_t kMost = Event::kTotalMask / 2;

    static_assert(kNarrowMax <= kMost, "what is admitted has room");

    /* Limits of another window are not known. */
    static uint64_t held_of(const Policy &policy, uint64_t limit) {
        return policy.algorithm == Algorithm::kLog && policy.salt == 0
                   ? std::max(policy.held, limit)
                   : limit;
    }

    /* The next ones return false if the key has changed meanwhile; the caller
     * looks again. */

    bool record_copy(Copy copy, uint64_t cost) {
        if (!events_.open(copy)) { return events_.is_odd() && record_owing(cost); }

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
        const Clock &clock = events_.clock();
        Event newest = events_.newest();
        uint64_t refused_ms = 0;

        if (events_.count() > 0 && !newest.is_closed() && events_.tick_of(newest) == clock.tick) {
            return events_.replace_newest(newest.with_total(newest.total() + cost))
                   == Events::kRecorded;
        }

        if (clock.is_log && events_.count() % kPageEvents == 0) {
            events_.give_up_pages(oldest.position, held_);
        }

        /* a full zone that denies has no room for a page */
        return events_.append<true>(clock.tick, cost, &refused_ms, held_) != Events::kLost;
    }

    /* A key that owes has room under a higher limit. */
    bool record_owing(uint64_t cost) {
        Owing owing(this);

        if (!owing.open()) { return false; }

        if (owing.used() >= limit()) { return true; }

        const uint64_t room = limit() - owing.used();

        if (!owing.settle(owing.owed() + std::min(room, cost))) { return false; }

        events_.keep();

        return true;
    }

    /* Returns the units that have been recorded since the window began, whether or not
     * they were given back. */
    uint64_t units_since(const Events::Found &oldest) const {
        return oldest.position == events_.count() ? 0 : oldest.own + oldest.later;
    }

    /* Returns the units of the present tick, as far as they are of one event. */
    uint64_t units_now() {
        if (events_.count() == 0 || events_.tick_of(events_.newest()) != events_.clock().tick) {
            return 0;
        }

        return events_.found(events_.count() - 1).own;
    }

    uint64_t held_;
};

} // namespace limit_sliding
