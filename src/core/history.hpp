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
    /* `now_ms` is of the zone's time; `brief` is for update_ready(), of a
     * counter. */
    History(const Claim &claim, uint64_t now_ms, bool brief = false)
        : events_(
            {claim.zone, counts_of(claim), claim.policy->full == WhenFull::kEvict, brief,
             Clock(*claim.policy, now_ms, !brief && claim.policy->algorithm == Algorithm::kLog)},
            claim.hash),
          claim_(claim), limit_(claim.limit) {}

    struct Result {
        Outcome outcome;
        uint64_t state; /* ADMITTED: mark of the event; REFUSED: ms */
    };

    /* Decides, and records what is admitted, if the key is in its first line
     * and all that counts in its ring, as Table::update_ready() does.  Else, or
     * if another request was faster, returns false: update() does it.  If the
     * key rejects, describes that. */
    bool update_ready(uint64_t cost, Result *result, Verdict *rejection) {
        if (cost == 0 || cost > limit_) { return false; }

        Copy copy = events_.table().find_ready();

        return copy.kind == Copy::confirmed && update_copy(copy, cost, result, rejection);
    }

    /* Decides and records, whatever that takes. */
    Result update(uint64_t cost, Verdict *rejection) {
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

        /* nobody loses so often: the key is damaged, if it has not changed */
        events_.forget();
        add(&events_.store().counts->refused, 1);

        return {Outcome::kRefused, 1};
    }

    /* Decides only. */
    Outcome look(uint64_t cost, Verdict *rejection) {
        bool admitted = false;

        events_.read([&] {
            Events::Found oldest;

            admitted = fits(cost, &oldest);

            if (!admitted) { describe_open(oldest, cost, rejection); }
        });

        return admitted ? Outcome::kAdmitted : Outcome::kRejected;
    }

    double share() {
        uint64_t taken = 0;

        events_.read([&] { taken = used(events_.oldest()); });

        return static_cast<double>(taken) / static_cast<double>(full());
    }

    /* Describes what the key has left. */
    void describe(Verdict *verdict) {
        events_.read([&] { describe_open(events_.oldest(), 0, verdict); });
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

    /* Records a cost whatever the limit says.  Returns how many units could not
     * be recorded. */
    uint64_t charge(uint64_t cost) {
        Verdict rejection;
        uint64_t limit = std::exchange(limit_, kCostMax);
        uint64_t taken = std::min(cost, limit);
        Result result = update(taken, &rejection);

        limit_ = limit;

        return result.outcome == Outcome::kAdmitted ? cost - taken : cost;
    }

    /* Gives back units of the newest event. */
    void give_back(uint64_t cost) {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = events_.table().look();

            if (copy.kind == Copy::none) { return; }

            if (events_.open(copy) && refund_open(mark(), cost)) { return; }
        }
    }

    void forget() {
        events_.table().amend([](uint64_t) { return Copy::kDead; });
    }

private:
    /* False: the key has changed meanwhile, and the caller looks again. */
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

    /* Returns the units x w that are used, less credits. */
    uint64_t used(const Events::Found &oldest) {
        uint64_t taken = events_.used(oldest);

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

        uint64_t given = std::min(events_.found(position).own, cost);

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

    /* What is known of a key that rejects. */
    struct Full {
        uint64_t used;  /* units x w, credits included */
        uint64_t then;  /* tick of the oldest event that counts */
        uint64_t own;   /* units of it */
        uint64_t later; /* units of those after it */
    };

    /* Returns false if the key has changed meanwhile; the caller looks again. */
    bool reject(const Events::Found &oldest, uint64_t cost, Verdict *rejection) {
        if (events_.is_torn() || !events_.is_same()) { return false; }

        return describe(claim_, events_.store().now.now_ms,
                        {events_.used(oldest), events_.tick_of(oldest.event), oldest.own,
                         events_.has_credits() ? UINT64_MAX : oldest.later},
                        cost, rejection);
    }

    /* Describes a key that rejects: mostly its oldest event is the one that the
     * request waits for.  Else it looks at the key again, and returns false if
     * that admits.  It is out of line and takes copies, so that the values of
     * requests that pass stay in registers. */
    [[gnu::noinline]] static bool describe(const Claim &claim, uint64_t now_ms, Full key,
                                           uint64_t cost, Verdict *rejection) {
        const Clock clock(*claim.policy, now_ms);
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
        return History(claim, now_ms).look(cost, rejection);
    }

    void describe_open(const Events::Found &oldest, uint64_t cost, Verdict *verdict) {
        uint64_t window_ms = events_.clock().window_ms;

        describe_usage(
            {limit_, limit_, window_ms, used(oldest), full()}, cost,
            [&](uint64_t room) { return wait_ms(oldest, room); }, verdict);
    }

    /* Returns the ms until used <= room, which is less than now, from when on
     * it stays so if nothing is admitted. */
    uint64_t wait_ms(const Events::Found &oldest, uint64_t room) {
        if (events_.has_credits()) { return wait_with_credits_ms(oldest, room); }

        /* mostly the request needs no more than the oldest event */
        if (oldest.later <= room) { return until_ms(oldest, oldest.own + oldest.later - room); }

        uint64_t total = events_.newest().total();
        Events::Found last = events_.found(events_.first_from(
            oldest.position + 1, [&](Event event) { return units(event.total(), total) <= room; }));

        return until_ms(last, last.own + last.later - room);
    }

    /* Returns the ms until an event has lost so many of its units. */
    uint64_t until_ms(const Events::Found &found, uint64_t lost) const {
        return events_.clock().until_lost_ms(events_.tick_of(found.event), found.own, lost);
    }

    [[gnu::noinline]] uint64_t wait_with_credits_ms(const Events::Found &oldest, uint64_t room) {
        Credits::Snapshot parts(credits());

        return wait_ms(oldest.position, room, last_rise(parts, room), parts);
    }

    /* Returns the tick of the last part at whose end used > room; 0 if there is
     * none.  A credit of a log ends when its part's first tick leaves the
     * window, and what is used rises then, until the events of that part leave
     * as well. */
    uint64_t last_rise(const Credits::Snapshot &parts, uint64_t room) {
        for (unsigned i = parts.count(); events_.clock().is_log && i > 0; i--) {
            uint64_t begin = parts.begin(i - 1);
            Events::Found next = events_.found(
                events_.first([&](Event event) { return events_.tick_of(event) > begin; }));

            if (next.own + next.later > room + parts.since(begin + 1)) { return begin; }
        }

        return 0;
    }

    /* Waits for the first event, of those that count, after which `room` units
     * or less came.  When it begins to be forgotten, after(event) and its own
     * units remain; of these it has to lose what is too much. */
    uint64_t wait_ms(uint64_t oldest, uint64_t room, uint64_t from,
                     const Credits::Snapshot &parts) {
        uint64_t total = events_.newest().total();

        auto after = [&](Event event) {
            uint64_t sum = units(event.total(), total);

            return sum - std::min(sum, parts.since(events_.tick_of(event) + 1));
        };

        Events::Found last = events_.found(events_.first_from(oldest, [&](Event event) {
            return events_.tick_of(event) >= from && after(event) <= room;
        }));
        uint64_t then = events_.tick_of(last.event);

        last.own -= std::min(last.own, parts.since(then) - parts.since(then + 1));

        uint64_t rest = after(last.event) + last.own;

        if (last.own == 0 || rest <= room) { return events_.clock().until_over_ms(then); }

        return until_ms(last, rest - room);
    }

    Events events_;
    const Claim &claim_;
    uint64_t limit_;
};

} // namespace limit_sliding
