/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "core/policy/describe_usage.hpp"
#include "core/rings/used_units.hpp"

namespace limit_sliding {

/*
 * algorithm=log, and counter with precision=n: the events of a key in one window.
 *
 *     used = units of the events that count fully
 *          + (units of the events that are `span` ticks old) x weight / w
 *
 * TickClock explains ticks, `span` and `weight`; w is the window in ms.  A request of cost c is
 * admitted when used + c <= limit.
 *
 * A request in the tick of the newest event adds its cost to that event.  A later request closes
 * the event, which fixes its total, and writes its own event into the next place.  Each write is a
 * compare-and-swap of a word that has not changed since the decision.  The number of events is
 * stored next; if a worker dies before, the next worker stores it.
 *
 * A closed event never changes, because later totals include it.  Refunds of its units are stored
 * apart (refunds.hpp) and subtracted from the used units.
 *
 * An object is one key at one moment, under one limit.
 */
class RingRule : private UsedUnits {
public:
    /* `now_ms` is the zone's time.  `brief`: reads only the key's ring, no pages and no refunds;
     * only for update_ready() of a counter. */
    RingRule(const Claim &claim, uint64_t now_ms, bool brief = false)
        : UsedUnits(claim, now_ms, brief), claim_(claim) {}

    /* The state of kAdmitted is the mark of the event, for a refund; of kRefused, the ms until a
     * slot for the key expires; else 0. */
    using Result = Table<RingSlots>::Result;

    /* Decides and records, if the key is in the first of its lines in the table and its ring has
     * all events that count.  Sets *rejection if the request is rejected.  Returns false if this
     * shortcut does not apply, and the caller must call update(). */
    bool update_ready(uint64_t cost, Result *result, Verdict *rejection) {
        if (cost == 0 || cost > limit_) { return false; }
        Copy copy = events_.table().find_ready();
        return copy.kind == Copy::confirmed && update_copy(copy, cost, result, rejection);
    }

    /* Does the same for all keys. */
    Result update(uint64_t cost, Verdict *rejection) {
        assert(limit_ >= 1 && cost <= kCostMax);
        Result result = {Outcome::kRefused, 0};

        if (cost == 0 || cost > limit_) {
            return {look(claim_, events_.store().now.now_ms, cost, rejection), 0};
        }

        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = events_.obtain(&result.state);

            if (copy.kind == Copy::none || update_copy(copy, cost, &result, rejection)) {
                return result;
            }
        }

        /* so many attempts fail only if the key is damaged; a key that has just changed remains */
        events_.forget();
        add(&events_.store().counts->refused, 1);

        return {Outcome::kRefused, 1};
    }

    /* Decides without recording.  Sets *rejection if the request would be rejected. */
    Outcome look(uint64_t cost, Verdict *rejection) {
        bool admitted = false;

        read([&] {
            Events::Found oldest;

            admitted = fits(cost, &oldest) || (cost == 0 && is_capped());

            if (!admitted) { describe_open(oldest, cost, rejection); }
        });

        return admitted ? Outcome::kAdmitted : Outcome::kRejected;
    }

    /* Returns the used units divided by the limit. */
    double share() {
        uint64_t taken = 0;
        read([&] { taken = used(events_.oldest()); });
        return static_cast<double>(taken) / static_cast<double>(full());
    }

    /* Describes the remaining units of the key. */
    void describe(Verdict *verdict) {
        read([&] { describe_open(events_.oldest(), 0, verdict); });
    }

    void forget() {
        events_.table().amend([](uint64_t) { return Copy::kDead; });
    }

private:
    /* Opens the key and calls visit() until the key does not change meanwhile. */
    template <class Visit>
    [[gnu::always_inline]] void read(const Visit &visit) {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = events_.table().look();

            if (copy.kind == Copy::none) {
                events_.open_none();
            } else if (!events_.open(copy)) {
                continue;
            }

            visit();

            if (!events_.is_torn() && (copy.kind == Copy::none || events_.is_same())) { return; }
        }

        events_.forget();
    }

    /* Returns false if the key has changed; the caller tries again. */
    bool update_copy(Copy copy, uint64_t cost, Result *result, Verdict *rejection) {
        if (!events_.open(copy)) { return false; }

        if (events_.is_idle()) {
            events_.forget();
            return false;
        }

        Events::Found oldest;

        if (!fits(cost, &oldest)) {
            *result = {Outcome::kRejected, 0};
            return reject(oldest, cost, rejection);
        }

        if (events_.is_torn() || !events_.is_same()) { return false; }

        uint64_t refused_ms = 0;

        switch (events_.record(cost, &refused_ms)) {
        case Events::kRecorded:
            *result = {Outcome::kAdmitted, mark(events_.clock().tick)};
            return true;
        case Events::kRefused:
            *result = {Outcome::kRefused, refused_ms};
            return true;
        default:
            return false;
        }
    }

    /* The numbers of a key that describe() needs. */
    struct Full {
        uint64_t used;  /* used units x w; refunds are not subtracted */
        uint64_t then;  /* tick of the oldest event that counts */
        uint64_t own;   /* units of the oldest event that counts */
        uint64_t later; /* units of all later events; UINT64_MAX if the key has refunds */
    };

    /* Returns false if the key has changed; the caller tries again. */
    bool reject(const Events::Found &oldest, uint64_t cost, Verdict *rejection) {
        if (events_.is_torn() || !events_.is_same()) { return false; }
        return describe(claim_, events_.store().now.now_ms,
                        {events_.used(oldest), events_.tick_of(oldest.event), oldest.own,
                         events_.has_refunds() ? UINT64_MAX : oldest.later},
                        cost, rejection);
    }

    /* Describes a rejection.  Most requests need only wait until the oldest event has lost units,
     * and `key` determines this time.  For other requests, reads the key again, and returns false
     * if the key admits the request by now.  The function is out of line and copies its arguments,
     * so that admitted requests keep their values in registers. */
    [[gnu::noinline]] static bool describe(const Claim &claim, uint64_t now_ms, Full key,
                                           uint64_t cost, Verdict *rejection) {
        const TickClock clock(*claim.policy, now_ms);
        bool is_known = true;

        auto wait_ms = [&](uint64_t room) {
            is_known &= key.later <= room;
            return is_known ? clock.until_lost_ms(key.then, key.own, key.own + key.later - room)
                            : 0;
        };

        describe_usage(
            {claim.limit, claim.limit, clock.window_ms, key.used, claim.limit * clock.window_ms},
            cost, wait_ms, rejection);

        return is_known || look(claim, now_ms, cost, rejection) == Outcome::kRejected;
    }

    [[gnu::noinline]] static Outcome look(const Claim &claim, uint64_t now_ms, uint64_t cost,
                                          Verdict *rejection) {
        return RingRule(claim, now_ms).look(cost, rejection);
    }

    [[gnu::always_inline]] void describe_open(const Events::Found &oldest, uint64_t cost,
                                              Verdict *verdict) {
        uint64_t window_ms = events_.clock().window_ms;
        uint64_t taken = used(oldest);
        if (is_capped()) { taken = std::min(taken, full()); }
        describe_usage(
            {limit_, limit_, window_ms, taken, full()}, cost,
            [&](uint64_t room) { return wait_ms(oldest, room); }, verdict);
    }

    /* Returns true if a log records rejected requests as well, so that the key may have units above
     * the limit.  Requests of cost 0 are then admitted, and descriptions ignore these units. */
    bool is_capped() const { return claim_.policy->counts_rejected && events_.clock().is_log; }

    /* Returns the ms until used <= room if no request is admitted.  Now, used > room. */
    [[gnu::always_inline]] uint64_t wait_ms(const Events::Found &oldest, uint64_t room) {
        /* most requests need only the oldest event */
        return !events_.has_refunds() && oldest.later <= room
                   ? until_ms(oldest, oldest.own + oldest.later - room)
                   : wait_later_ms(oldest.position, room);
    }

    /* Returns the ms until an event has lost `lost` units. */
    uint64_t until_ms(const Events::Found &found, uint64_t lost) const {
        return events_.clock().until_lost_ms(events_.tick_of(found.event), found.own, lost);
    }

    /* In a log, the refunds of a part (refunds.hpp) expire when the first tick of the part leaves
     * the window.  The used units then rise, until the events of the part have left the window as
     * well.  Returns the first tick of the last part whose refunds leave more than `room` units
     * used when they expire; 0 if there is none. */
    uint64_t last_rise(const Refunds::Snapshot &parts, uint64_t room) {
        for (unsigned i = parts.count(); events_.clock().is_log && i > 0; i--) {
            uint64_t begin = parts.begin(i - 1);
            Events::Found next = events_.since(begin + 1);
            if (next.own + next.later > room + parts.used_since(begin + 1)) { return begin; }
        }
        return 0;
    }

    /* Returns the ms until used <= room.  Searches from the last rise on for the first event with
     * after(event) <= room: the units of all later events, less their refunds.  When this event
     * begins to expire, its own units and after(event) are used.  The key has room once the event
     * has lost the units above `room`. */
    [[gnu::noinline]] uint64_t wait_later_ms(uint64_t oldest, uint64_t room) {
        const auto parts
            = events_.has_refunds() ? Refunds::Snapshot(refunds()) : Refunds::Snapshot();
        uint64_t from = last_rise(parts, room);
        uint64_t total = events_.newest().total();

        auto after = [&](Event event) {
            uint64_t sum = units(event.total(), total);
            return sum - std::min(sum, parts.used_since(events_.tick_of(event) + 1));
        };

        Events::Found last = events_.found(events_.first(oldest, events_.count(), [&](Event event) {
            return events_.tick_of(event) >= from && after(event) <= room;
        }));
        uint64_t then = events_.tick_of(last.event);

        last.own -= std::min(last.own, parts.used_since(then) - parts.used_since(then + 1));

        uint64_t rest = after(last.event) + last.own;

        if (last.own == 0 || rest <= room) { return events_.clock().until_over_ms(then); }

        return until_ms(last, rest - room);
    }

    const Claim &claim_;
};

} // namespace limit_sliding
