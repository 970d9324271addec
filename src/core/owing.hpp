/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/describe.hpp"
#include "core/ring_debt.hpp"
#include "core/tally.hpp"

namespace limit_sliding {

/*
 * A key that owes, or is about to: what it has used with a charge is more than
 * the limit.
 *
 * A debt (ring_debt.hpp) takes the place of the newest event, which is not closed, and
 * its units.  So it is made, grows, shrinks and becomes an event again by one
 * compare-and-swap each.  It is no valid event: who does not know of debts takes
 * the key for damaged, and then asks here.  Nothing comes after it: a key that
 * owes admits nothing, or no longer owes.
 *
 * A debt of no more than a limit is an event that is to come when enough of those
 * before it are over.  It counts already, so until then there is no room, and all
 * is described as of any other key.
 *
 * What is more is owed for several windows.  Such a debt keeps the limit at the
 * pace of which it is paid: the highest that it was charged under.
 *
 * An object is one key at one moment, under one limit.
 */
class Owing {
public:
    explicit Owing(Tally *tally) : tally_(*tally), events_(tally->events()) {}

    /* Opens a key that Events::open() has found odd.  False: it does not owe any
     * more, and the caller looks again. */
    bool open() {
        const Clock &clock = events_.clock();

        seen_ = events_.newest();
        before_ = events_.before(events_.count() - 1);

        if (!events_.ring().is_debt(seen_) || !before_.is_valid()) {
            events_.forget();
            return false;
        }

        debt_ = RingDebt::of(seen_, before(), clock);

        Event next = events_.made(debt_.end, before_.total() + debt_.rest);

        if (debt_.end <= clock.tick) {
            replace(next);
            return false;
        }

        events_.open_as(before_, is_long() ? events_.made(before(), before_.total()) : next);
        owed_ = debt_.units(clock);
        earlier_ = used_earlier();
        pace_ = std::max(
            {tally_.limit(), debt_.limit, debt_.rest, std::min(earlier_, RingDebt::kUnitMask)});

        return true;
    }

    /* Begins to owe `cost` with a key that does not yet, and has used so many
     * units.  False: another event has to be put before, as what was used stays in
     * its own, but for a counter that will owe no more than a window's: its ring
     * has few places to spare. */
    bool begin(uint64_t taken, uint64_t cost) {
        const Clock &clock = events_.clock();

        seen_ = events_.newest();

        if (events_.count() < 2 || seen_.is_closed() || events_.tick_of(seen_) != clock.tick) {
            return false;
        }

        before_ = events_.before(events_.count() - 1);
        owed_ = units(before_.total(), seen_.total());
        earlier_ = taken - std::min(taken, owed_);
        pace_ = std::max(std::min(taken, RingDebt::kUnitMask), tally_.limit());

        /* without its event, the key's time is that of the event before again */
        bool keeps_time = clock.tick == std::max(events_.store().now.tick, before());
        bool may_merge = !clock.is_log && owed_ + cost <= pace_;

        return before_.is_valid() && RingDebt::may_follow(before(), clock)
               && ((keeps_time && (owed_ == 0 || may_merge))
                   || (!clock.is_log && !events_.has_place()));
    }

    bool is_long() const { return debt_.is_long(); }

    /* Returns the units that are used. */
    uint64_t used() const { return earlier_ + owed_; }
    uint64_t owed() const { return owed_; }

    bool fits(uint64_t cost) const {
        return cost <= tally_.limit() && used() <= tally_.limit() - cost;
    }

    /* The next three return false if the key has changed meanwhile; the caller
     * looks again. */

    /* Records units whatever the limit.  Returns how many could not be recorded. */
    bool charge(uint64_t cost, uint64_t *lost) {
        *lost = 0;

        return used() + cost <= pace_ ? settle(owed_ + cost) : owe(owed_ + cost, cost, lost);
    }

    /* Gives units back, but no more than are in the place of the newest event.
     * Returns how many are left to be given back. */
    bool give_back(uint64_t cost, uint64_t *left) {
        uint64_t given = std::min(cost, owed_);
        uint64_t lost;

        *left = cost - given;

        /* what was used earlier alone is no more than the pace */
        return used() - given <= pace_ ? settle(owed_ - given) : owe(owed_ - given, 0, &lost);
    }

    /* Makes it an event of so many units at present, and no debt.  A counter has
     * no two events of a tick: they would fade together.  So the key's time may
     * advance to the next tick; what is over then is made up for. */
    bool settle(uint64_t own) {
        const Clock &clock = events_.clock();

        if (before() + clock.fading() > clock.tick) {
            /* of the same credits: what others give back meanwhile is not over */
            Credits::Snapshot parts(tally_.credits());
            uint64_t taken = own + used_earlier(parts);

            events_.advance_to(before() + clock.fading());
            own = taken - std::min(taken, used_earlier(parts));
        }

        tick_ = clock.tick;

        return replace(events_.made(tick_, before_.total() + own));
    }

    /* Returns the tick of the event that settle() has made. */
    uint64_t tick() const { return tick_; }

    /* Returns the ms until no more than `room` of a long debt, or of the event that
     * it will be, are used: less than now. */
    uint64_t wait_ms(uint64_t room) const {
        const Clock &clock = events_.clock();

        return room >= debt_.rest ? clock.until_ms(debt_.tick_of(room, clock))
                                  : clock.until_lost_ms(debt_.end, debt_.rest, debt_.rest - room);
    }

private:
    uint64_t before() const { return events_.tick_of(before_); }

    uint64_t used_earlier() { return earlier_of(tally_.whole_used(events_.oldest())); }

    uint64_t used_earlier(const Credits::Snapshot &parts) {
        return earlier_of(tally_.whole_used(events_.oldest(), parts));
    }

    /* Several may give back the same units at once, and so more than were used
     * earlier: then there are credits for some of what is owed. */
    uint64_t earlier_of(uint64_t taken) const {
        return taken - (is_long() ? 0 : std::min(taken, owed_));
    }

    /* Owes these units, `cost` of which are new.  Returns how many of these are
     * more than a debt can be. */
    bool owe(uint64_t owed, uint64_t cost, uint64_t *lost) {
        const Clock &clock = events_.clock();
        uint64_t passed = debt_.passed(clock);
        uint64_t windows = (owed - 1) / pace_;

        /* after its first window, all earlier events are over, and more is owed than this */
        if (windows == 0) {
            debt_ = {0, owed, before(), tick_of_room(owed)};
            return replace(debt_.event(events_.ring(), clock));
        }

        windows = std::min(windows, RingDebt::windows_max(passed, clock));

        uint64_t rest = std::min(owed - windows * pace_, pace_);
        uint64_t excess = owed - windows * pace_ - rest;

        *lost = std::min(excess, cost);

        if (excess != 0 && excess >= cost) { return true; }

        /* at first there is the present window besides */
        windows += std::max<uint64_t>(1, passed);
        debt_ = {pace_, rest, before(), RingDebt::end_of(before(), windows, clock)};

        return replace(debt_.event(events_.ring(), clock));
    }

    /* Returns the tick at which enough of the earlier events are over. */
    uint64_t tick_of_room(uint64_t owed) {
        const Clock &clock = events_.clock();
        Events::Found oldest = events_.oldest();
        uint64_t total = events_.newest().total();
        uint64_t given = (events_.used(oldest) - tally_.used(oldest)) / clock.window_ms;
        uint64_t later = units(before_.total(), total);
        uint64_t room = pace_ - owed + later + given;
        uint64_t last = events_.first_from(
            oldest.position, [&](Event event) { return units(event.total(), total) <= room; });

        return events_.tick_of(events_.at(last)) + clock.span + clock.fading();
    }

    bool replace(Event next) {
        return !events_.is_torn() && events_.is_same()
               && events_.replace_newest(seen_, next) == Events::kRecorded;
    }

    Tally &tally_;
    Events &events_;
    Event seen_ = {};   /* in the place of the newest event */
    Event before_ = {}; /* it */
    RingDebt debt_ = {};
    uint64_t owed_ = 0;    /* or used in its newest event, if the key does not owe */
    uint64_t earlier_ = 0; /* units that are used besides */
    uint64_t pace_ = 0;    /* units a window */
    uint64_t tick_ = 0;
};

} // namespace limit_sliding
