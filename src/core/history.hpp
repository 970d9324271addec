/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/atomics.hpp"
#include "core/claim.hpp"
#include "core/credits.hpp"
#include "core/describe.hpp"
#include "core/events.hpp"

namespace limit_sliding {

/*
 * algorithm=log, and counter with precision=n: a key's events of one window.
 *
 *     used = units of the events that count fully
 *          + units of those `span` ticks old x weight / w
 *
 * and a request of cost c is admitted when used + c <= limit.
 *
 * A request of the newest event's tick is added to that event.  A later one
 * closes it, so that its total stands, and puts its own into the next place.
 * Either is one compare-and-swap of a word that nobody else has changed since
 * the decision, and is the moment of the decision.  The number of events
 * follows; if its author died, whoever comes next adds it.
 *
 * A closed event never changes, as later totals stand on it.  Units that are
 * given back of it are recorded in Credits, and subtracted from what is used.
 *
 * An object is one key at one moment, under one limit.
 */
class History {
public:
    /* `now_ms` is of the zone's time; `brief` is for update_ready(). */
    History(const Claim &claim, uint64_t now_ms, bool brief = false)
        : events_({claim.zone, counts_of(claim), claim.policy->full == WhenFull::kEvict, brief,
                   Clock(*claim.policy, now_ms)},
                  claim.hash),
          limit_(claim.limit) {}

    struct Result {
        Outcome outcome;
        uint64_t state; /* ADMITTED: mark of the event; REFUSED: ms */
    };

    /* Decides, and records what is admitted, if the key is in its first line
     * and all that counts in its ring, as Table::update_ready() does.  Else, or
     * if another request was faster, returns false: update() does it. */
    bool update_ready(uint64_t cost, Result *result) {
        if (cost == 0 || cost > limit_) { return false; }

        Copy copy = events_.table().find_ready();

        return copy.kind == Copy::confirmed && update_copy(copy, cost, result);
    }

    /* Decides and records, whatever that takes. */
    Result update(uint64_t cost) {
        Result result = {Outcome::kRefused, 0};

        if (cost == 0 || cost > limit_) { return {look(cost), 0}; }

        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = events_.obtain(&result.state);

            if (copy.kind == Copy::none || update_copy(copy, cost, &result)) { return result; }
        }

        /* nobody loses so often: the key is damaged, if it has not changed */
        events_.forget();
        add(&events_.store().counts->refused, 1);

        return {Outcome::kRefused, 1};
    }

    /* Decides only. */
    Outcome look(uint64_t cost) {
        bool admitted = false;

        events_.read([&] { admitted = fits(cost); });

        return admitted ? Outcome::kAdmitted : Outcome::kRejected;
    }

    double share() {
        uint64_t taken = 0;

        events_.read([&] { taken = used(); });

        return static_cast<double>(taken) / static_cast<double>(full());
    }

    void describe(uint64_t cost, Verdict *verdict) {
        events_.read([&] { describe_open(cost, verdict); });
    }

    /* Takes back the units that an admission recorded in the event of this
     * mark.  Does nothing if the event is over, or was forgotten. */
    void refund(uint64_t mark, uint64_t cost) {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = events_.table().look();

            if (copy.kind == Copy::none) { return; }

            if (events_.open(copy) && refund_open(mark, cost)) { return; }
        }
    }

    void forget() {
        events_.table().amend([](uint64_t) { return Copy::kDead; });
    }

private:
    /* False: the key has changed meanwhile, and the caller looks again. */
    bool update_copy(Copy copy, uint64_t cost, Result *result) {
        if (!events_.open(copy)) { return false; }

        if (events_.is_idle()) {
            events_.forget();
            return false;
        }

        bool admitted = fits(cost);

        if (events_.is_torn() || !events_.is_same()) { return false; }

        if (!admitted) {
            *result = {Outcome::kRejected, 0};
            return true;
        }

        uint64_t refused_ms = 0;

        switch (record(cost, &refused_ms)) {
        case Events::kRecorded:
            *result = {Outcome::kAdmitted, mark()};
            return true;
        case Events::kRefused:
            *result = {Outcome::kRefused, refused_ms};
            return true;
        default:
            return false;
        }
    }

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
    uint64_t mark() const {
        return events_.name() << kTickBits | (events_.clock().tick & Event::kTickMask);
    }

    uint64_t full() const { return limit_ * events_.clock().window_ms; }

    bool fits(uint64_t cost) {
        if (cost > limit_) { return false; }

        if (is_over_before(limit_ - cost)) { return true; }

        uint64_t room = (limit_ - cost) * events_.clock().window_ms;
        uint64_t taken = events_.used();

        return taken <= room || (events_.has_credits() && less_credit(taken) <= room);
    }

    /* True if all units but the newest `room` are known to be over.  Mostly one
     * event of a log tells it, as most events are of one unit.  It must be
     * recent, and nothing may have been given back, as totals wrap. */
    bool is_over_before(uint64_t room) {
        const Clock &clock = events_.clock();
        uint64_t count = events_.count();

        if (!clock.is_log || count <= room || events_.has_credits()) { return false; }

        Event event = events_.at(count - 1 - room);

        if (!event.is_valid()) { return false; }

        uint64_t then = events_.tick_of(event);

        return clock.is_over(then) && !clock.is_over(then + clock.span)
               && units(event.total(), events_.newest().total()) <= room;
    }

    /* Returns the units x w that are used, less credits. */
    uint64_t used() {
        uint64_t taken = events_.used();

        return events_.has_credits() ? less_credit(taken) : taken;
    }

    /* Returns the credits of the key as it is open. */
    Credits credits() const {
        EventStore store = events_.store();

        store.now = events_.clock();

        return Credits(store, events_.credits_hash());
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

    /* False: the key has changed meanwhile, and the caller looks again. */
    bool refund_open(uint64_t mark, uint64_t cost) {
        uint64_t tick = events_.tick_of({mark & Event::kTickMask});
        uint64_t position
            = events_.first([&](Event event) { return events_.tick_of(event) >= tick; });

        if (events_.is_torn() || !events_.is_same()) { return false; }

        if (events_.name() != mark >> kTickBits || events_.clock().is_over(tick)
            || position == events_.count() || events_.tick_of(events_.at(position)) != tick) {
            return true;
        }

        uint64_t given = std::min(events_.own_units(position), cost);

        if (events_.is_torn() || !events_.is_same()) { return false; }

        Event newest = events_.newest();

        if (position + 1 == events_.count() && !newest.is_closed()) {
            return events_.replace_newest(newest.with_total(newest.total() - given))
                   == Events::kRecorded;
        }

        if (!events_.note_credits()) { return false; }

        credits().add(tick, given);

        return true;
    }

    void describe_open(uint64_t cost, Verdict *verdict) {
        uint64_t window_ms = events_.clock().window_ms;

        describe_usage(
            {limit_, limit_, window_ms, used(), full()}, cost,
            [&](uint64_t room) { return wait_ms(room); }, verdict);
    }

    /* Returns the ms until used <= room, which is less than now, from when on
     * it stays so if nothing is admitted. */
    uint64_t wait_ms(uint64_t room) {
        if (events_.has_credits()) { return wait_with_credits_ms(room); }

        return wait_ms(room, 0, [](uint64_t) { return uint64_t{0}; });
    }

    [[gnu::noinline]] uint64_t wait_with_credits_ms(uint64_t room) {
        Credits::Snapshot parts(credits());

        return wait_ms(room, last_rise(parts, room),
                       [&](uint64_t tick) { return parts.since(tick); });
    }

    /* Returns the tick of the last part at whose end used > room; 0 if there is
     * none.  A credit of a log ends when its part's first tick leaves the
     * window, and what is used rises then, until the events of that part leave
     * as well. */
    uint64_t last_rise(const Credits::Snapshot &parts, uint64_t room) {
        for (unsigned i = parts.count(); events_.clock().is_log && i > 0; i--) {
            uint64_t begin = parts.begin(i - 1);
            uint64_t position
                = events_.first([&](Event event) { return events_.tick_of(event) > begin; });

            if (position == events_.count()) { continue; }

            uint64_t sum = events_.own_units(position)
                           + units(events_.at(position).total(), events_.newest().total());

            if (sum > room + parts.since(begin + 1)) { return begin; }
        }

        return 0;
    }

    /* Waits for the first event after which `room` units or less came.  When it
     * begins to be forgotten, after(event) and its own units remain; of these
     * it has to lose what is too much.  given(tick) is what was given back of
     * that tick and later ones. */
    template <class Given>
    uint64_t wait_ms(uint64_t room, uint64_t from, const Given &given) {
        const Clock &clock = events_.clock();
        uint64_t total = events_.newest().total();

        auto after = [&](Event event) {
            uint64_t sum = units(event.total(), total);

            return sum - std::min(sum, given(events_.tick_of(event) + 1));
        };

        uint64_t position = events_.first([&](Event event) {
            uint64_t tick = events_.tick_of(event);

            return tick >= from && !clock.is_over(tick) && after(event) <= room;
        });
        Event event = events_.at(position);
        uint64_t then = events_.tick_of(event);
        uint64_t own = units(events_.total_before(position), event.total());

        own -= std::min(own, given(then) - given(then + 1));

        uint64_t rest = after(event) + own;
        uint64_t lost = clock.window_ms;

        if (own > 0 && rest > room) { lost = ((rest - room) * clock.window_ms + own - 1) / own; }

        return clock.until_lost_ms(then, lost);
    }

    Events events_;
    uint64_t limit_;
};

} // namespace limit_sliding
