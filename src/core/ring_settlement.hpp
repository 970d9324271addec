/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/owing.hpp"
#include "core/tally.hpp"

namespace limit_sliding {

/* Charges a history (history.hpp) for what requests turned out to cost, and gives
 * back what they did not.  A key may owe then (owing.hpp). */
class RingSettlement : private Tally {
public:
    /* `now_ms` is of the zone's time. */
    RingSettlement(const Claim &claim, uint64_t now_ms) : Tally(claim, now_ms, false) {}

    /* Records a cost whatever the limit says.  Returns how many units could not
     * be recorded. */
    uint64_t charge(uint64_t cost) {
        uint64_t lost = charge_all(cost);

        events_.keep();

        return lost;
    }

    /* Takes back the units that an admission recorded in the event of this
     * mark.  Does nothing if the event is over, or was forgotten. */
    void refund(uint64_t mark, uint64_t cost) {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = events_.table().look();

            if (copy.kind == Copy::none) { return; }

            if (refund_copy(copy, mark, &cost)) { return give_back(cost); }
        }
    }

    /* Gives back so many units of the key, those of the newest events first. */
    void give_back(uint64_t cost) {
        for (unsigned attempts = 0; attempts < kAttempts && cost != 0; attempts++) {
            Copy copy = events_.table().look();

            if (copy.kind == Copy::none) { return; }

            give_back_copy(copy, &cost);
        }

        events_.keep();
    }

private:
    uint64_t charge_all(uint64_t cost) {
        uint64_t lost = 0;
        uint64_t refused_ms;

        for (unsigned attempts = 0; attempts < kAttempts && cost != 0; attempts++) {
            Copy copy = events_.obtain(&refused_ms);

            if (copy.kind == Copy::none) { return cost; }

            if (charge_copy(copy, &cost, &lost)) { return lost; }
        }

        return cost;
    }

    /* The next ones return false if the key has changed meanwhile; the caller
     * looks again. */

    bool charge_copy(Copy copy, uint64_t *cost, uint64_t *lost) {
        Owing owing(this);

        if (events_.open(copy)) { return charge_open(&owing, cost, lost); }

        return events_.is_odd() && owing.open() && owing.charge(*cost, lost);
    }

    /* Subtracts from `cost` what it has recorded as far as there was room. */
    bool charge_open(Owing *owing, uint64_t *cost, uint64_t *lost) {
        Events::Found oldest;

        if (events_.is_idle()) {
            events_.forget();
            return false;
        }

        bool is_fitting = fits(*cost, &oldest);

        if (events_.is_torn() || !events_.is_same()) { return false; }

        uint64_t now = *cost;
        uint64_t refused_ms = 0;

        if (!is_fitting) {
            uint64_t taken = whole_used(oldest);

            now = std::min(*cost, limit() - std::min(limit(), taken));

            if (now == 0 && owing->begin(taken, *cost)) { return owing->charge(*cost, lost); }
        }

        switch (now != 0 ? record(now, &refused_ms)
                         : events_.append(events_.clock().tick, 0, &refused_ms)) {
        case Events::kRecorded:
            *cost -= now;
            return *cost == 0;
        case Events::kRefused:
            *lost = *cost;
            return true;
        default:
            return false;
        }
    }

    /* The next two return what is left to be given back of the newest events. */

    bool refund_copy(Copy copy, uint64_t mark, uint64_t *cost) {
        Owing owing(this);

        if (events_.open(copy)) { return refund_open(mark, cost); }

        if (!events_.is_odd() || !owing.open()) { return false; }

        if (is_over(mark, events_.store().now)) {
            *cost = 0;
            return true;
        }

        return give_back_owing(&owing, cost);
    }

    bool refund_open(uint64_t mark, uint64_t *cost) {
        uint64_t tick = tick_of(mark);
        uint64_t position
            = events_.first([&](Event event) { return events_.tick_of(event) >= tick; });
        Events::Found found = events_.found(position);
        bool is_missing = position == events_.count()
                          || (events_.tick_of(found.event) != tick && !was_merged(position, tick));

        if (events_.is_torn() || !events_.is_same()) { return false; }

        if (is_missing || is_over(mark, events_.clock())) {
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

    /* True if this is the newest event, and more may be added to it. */
    bool is_open(const Events::Found &found) const {
        return found.position + 1 == events_.count() && !events_.newest().is_closed();
    }

    /* True if the mark's event does not count any more, or is of another history
     * of the key.  The clock of a key that owes is ahead: of that the caller's
     * time tells. */
    bool is_over(uint64_t mark, const Clock &clock) const {
        return events_.name() != mark >> kTickBits || clock.is_over(tick_of(mark));
    }

    uint64_t tick_of(uint64_t mark) const { return events_.tick_of({mark & Event::kTickMask}); }

    /* True if there was an event of that tick, which a debt has replaced, before
     * it became this one, the first that is later: so it is not missing for
     * another reason. */
    bool was_merged(uint64_t position, uint64_t tick) {
        Event before = events_.before(position);

        return before.is_valid() && events_.tick_of(before) < tick;
    }

    /* Gives back units of an event. */
    bool give_back_of(const Events::Found &found, uint64_t given) {
        if (is_open(found)) {
            Event newest = events_.newest();

            return events_.replace_newest(newest.with_total(newest.total() - given))
                   == Events::kRecorded;
        }

        if (!events_.note_credits()) { return false; }

        credits().add(events_.tick_of(found.event), given);

        return true;
    }

    static bool give_back_owing(Owing *owing, uint64_t *cost) {
        uint64_t left;

        if (!owing->give_back(*cost, &left)) { return false; }

        *cost = left;

        return true;
    }

    /* Subtracts from `cost` what it has given back. */
    void give_back_copy(Copy copy, uint64_t *cost) {
        Owing owing(this);

        if (!events_.open(copy)) {
            if (events_.is_odd() && owing.open()) { give_back_owing(&owing, cost); }
            return;
        }

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

    /* Returns, as one event, the newest part of Credits of which something may be
     * given back; with no units of its own if there is none. */
    Events::Found newest_closed() {
        Credits::Snapshot parts(credits());
        uint64_t grain = credits().grain();
        uint64_t begin = events_.tick_of(events_.newest()) / grain * grain;

        for (; !events_.clock().is_over(begin); begin -= grain) {
            Events::Found part = part_of(begin, parts);

            if (part.own != 0) { return part; }

            if (begin < grain) { break; }
        }

        return {};
    }

    /* Returns the part that begins then, as one event of the units of its closed
     * events that were not given back yet. */
    Events::Found part_of(uint64_t begin, const Credits::Snapshot &parts) {
        uint64_t end = begin + credits().grain();
        Events::Found first = first_since(begin);
        uint64_t given = parts.since(begin) - parts.since(end);
        uint64_t own = closed_since(begin) - closed_since(end);

        return {first.position, first.event, own - std::min(own, given), 0};
    }

    /* Returns the units of the closed events since a tick. */
    uint64_t closed_since(uint64_t tick) {
        Events::Found first = first_since(tick);
        Events::Found newest = events_.found(events_.count() - 1);

        return first.own + first.later
               - (first.position <= newest.position && is_open(newest) ? newest.own : 0);
    }

    /* Returns how many units of a closed event may be given back. */
    uint64_t left_of(const Events::Found &found) {
        if (!events_.has_credits()) { return found.own; }

        uint64_t tick = events_.tick_of(found.event);
        Credits::Snapshot parts(credits());

        return std::min(found.own, part_of(tick - tick % credits().grain(), parts).own);
    }

    Events::Found first_since(uint64_t tick) {
        return events_.found(
            events_.first([&](Event event) { return events_.tick_of(event) >= tick; }));
    }
};

} // namespace limit_sliding
