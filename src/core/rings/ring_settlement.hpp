/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/rings/refunds.hpp"
#include "core/rings/used_units.hpp"

namespace limit_sliding {

/*
 * Refunds units of a history (ring_rule.hpp), and records rejected requests in the history as if
 * they were admitted.
 *
 * With rejected requests, a history may have more units than the limit.  In a log only the newest
 * units up to the limit matter: no request is admitted while these are in the window, and older
 * units leave the window first.  So pages of older units are deleted.  In a counter, each part
 * records at most as many units as the limit.
 *
 * The units of two windows together must stay below 2^23, where totals wrap.  If the limit exceeds
 * 200,000, and costs or bursts are a large part of the limit, the cost of a rejected request may
 * therefore be recorded in part, or not at all.
 */
class RingSettlement : private UsedUnits {
public:
    /* `now_ms` is the zone's time. */
    RingSettlement(const Claim &claim, uint64_t now_ms) : UsedUnits(claim, now_ms, false) {}

    /* Records the cost of a rejected request. */
    void record_rejected(uint64_t cost) {
        uint64_t refused_ms;
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = events_.obtain(&refused_ms);
            if (copy.kind == Copy::none || record_copy(copy, cost)) { return; }
        }
    }

    /* Refunds a cost, first from the event with this mark, then from the newest events.  Does
     * nothing if the event has expired or was evicted. */
    void refund(uint64_t mark, uint64_t cost) {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = events_.table().look();
            if (copy.kind == Copy::none) { return; }
            if (refund_copy(copy, mark, &cost)) { return give_back(cost); }
        }
    }

    /* Refunds units of the key, from the newest events first. */
    void give_back(uint64_t cost) {
        for (unsigned attempts = 0; attempts < kAttempts && cost != 0; attempts++) {
            Copy copy = events_.table().look();
            if (copy.kind == Copy::none) { return; }
            give_back_copy(copy, &cost);
        }
    }

private:
    /* The largest number of units in a window. */
    static constexpr uint64_t kMost = Event::kTotalMask / 2;

    static_assert(kNarrowMax <= kMost, "admitted units have room");

    /* Returns how many of the newest units the history keeps.  Policy::held is valid only for the
     * zone's window. */
    uint64_t held() const {
        const Policy &policy = *events_.store().policy;
        return policy.algorithm == Algorithm::kLog && policy.salt == 0
                   ? std::max(policy.held, limit_)
                   : limit_;
    }

    /* Records the cost in a copy of the key, as far as there is room.  Returns false if the key has
     * changed; the caller tries again. */
    bool record_copy(Copy copy, uint64_t cost) {
        if (!events_.open(copy)) { return false; }

        if (events_.is_idle()) {
            events_.forget();
            return false;
        }

        Events::Found oldest = events_.oldest();
        uint64_t taken = oldest.own + oldest.later; /* including refunded units */
        uint64_t room
            = std::min(held() - std::min(held(), units_now()), kMost - std::min(kMost, taken));

        if (events_.is_torn() || !events_.is_same()) { return false; }

        cost = std::min(cost, room);

        /* a full zone with WhenFull::kDeny has no slot for a page, so the cost is not recorded */
        uint64_t refused_ms = 0;
        const Events::Held kept = {held(), oldest.position};
        return cost == 0 || events_.record(cost, &refused_ms, &kept) != Events::kLost;
    }

    /* Returns the units of the present tick. */
    uint64_t units_now() {
        if (events_.count() == 0 || events_.tick_of(events_.newest()) != events_.clock().tick) {
            return 0;
        }
        return events_.found(events_.count() - 1).own;
    }

    /* Refunds units of the event with this mark, and subtracts them from *cost.  The caller refunds
     * the rest from the newest events.  Sets *cost to 0 if the event is missing.  Returns false if
     * the key has changed; the caller tries again. */
    bool refund_copy(Copy copy, uint64_t mark, uint64_t *cost) {
        if (!events_.open(copy)) { return false; }

        uint64_t tick = events_.tick_of({mark & Event::kTickMask});
        Events::Found found = events_.since(tick);
        bool is_missing = found.position == events_.count() || events_.tick_of(found.event) != tick;
        bool is_former = events_.name() != mark >> kTickBits; /* the mark is of another history */

        if (events_.is_torn() || !events_.is_same()) { return false; }

        if (is_missing || is_former || events_.clock().is_over(tick)) {
            *cost = 0;
            return true;
        }

        uint64_t given = std::min(is_open(found) ? found.own : left_of(found), *cost);

        if (events_.is_torn() || !events_.is_same() || !events_.is_newest_same()
            || !give_back_of(found, given)) {
            return false;
        }

        *cost -= given;

        return true;
    }

    /* Returns true if the event is the newest one and open. */
    bool is_open(const Events::Found &found) const {
        return found.position + 1 == events_.count() && !events_.newest().is_closed();
    }

    /* Refunds `given` units of an event.  Returns false if the key has changed. */
    bool give_back_of(const Events::Found &found, uint64_t given) {
        if (is_open(found)) {
            Event newest = events_.newest();
            return events_.replace_newest(newest.with_total(newest.total() - given))
                   == Events::kRecorded;
        }
        if (!events_.note_refunds()) { return false; }
        refunds().add(events_.tick_of(found.event), given);
        return true;
    }

    /* Refunds units of the newest event, if it is open and has units, else of the newest part with
     * units, and subtracts them from *cost.  Sets *cost to 0 if no units are left to refund.
     * Changes nothing if the key has changed; the caller tries again. */
    void give_back_copy(Copy copy, uint64_t *cost) {
        if (!events_.open(copy)) { return; }

        if (events_.count() == 0 || events_.clock().is_over(events_.tick_of(events_.newest()))) {
            *cost = 0;
            return;
        }

        Events::Found newest = events_.found(events_.count() - 1);
        Events::Found found = newest.own != 0 && is_open(newest) ? newest : newest_closed();
        uint64_t given = std::min(found.own, *cost);

        if (events_.is_torn() || !events_.is_same() || !events_.is_newest_same()) { return; }

        if (given == 0) {
            *cost = 0;
        } else if (give_back_of(found, given)) {
            *cost -= given;
        }
    }

    /* Returns the newest part of Refunds with units to refund, as one event; an event without
     * units if there is none. */
    Events::Found newest_closed() {
        Refunds::Snapshot parts(refunds());
        uint64_t grain = refunds().grain();
        uint64_t begin = events_.tick_of(events_.newest()) / grain * grain;

        for (; !events_.clock().is_over(begin); begin -= grain) {
            Events::Found part = part_of(begin, parts);

            if (part.own != 0) { return part; }

            if (begin < grain) { break; }
        }

        return {};
    }

    /* Returns the part that begins at a tick as one event, with the units of its closed events
     * that were not refunded yet. */
    Events::Found part_of(uint64_t begin, const Refunds::Snapshot &parts) {
        uint64_t end = begin + refunds().grain();
        Events::Found first = events_.since(begin);
        uint64_t given = parts.since(begin) - parts.since(end);
        uint64_t own = closed_since(begin) - closed_since(end);
        return {first.position, first.event, own - std::min(own, given), 0};
    }

    /* Returns the units of the closed events since a tick. */
    uint64_t closed_since(uint64_t tick) {
        Events::Found first = events_.since(tick);
        Events::Found newest = events_.found(events_.count() - 1);
        return first.own + first.later
               - (first.position <= newest.position && is_open(newest) ? newest.own : 0);
    }

    /* Returns how many units of a closed event can be refunded: its own, but no more than are left
     * in its part. */
    uint64_t left_of(const Events::Found &found) {
        if (!events_.has_refunds()) { return found.own; }
        uint64_t tick = events_.tick_of(found.event);
        Refunds::Snapshot parts(refunds());
        return std::min(found.own, part_of(tick - tick % refunds().grain(), parts).own);
    }
};

} // namespace limit_sliding
