/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/describe.hpp"
#include "core/owing.hpp"
#include "core/tally.hpp"

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
 * given back of it are recorded in Credits, and subtracted from what is used
 * (ring_settlement.hpp).
 *
 * An object is one key at one moment, under one limit.
 */
class History : private Tally {
public:
    /* `now_ms` is of the zone's time; `brief` is for update_ready(), of a
     * counter. */
    History(const Claim &claim, uint64_t now_ms, bool brief = false)
        : Tally(claim, now_ms, brief), claim_(claim) {}

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

            if (events_.is_odd()
                && update_odd(claim_, events_.store().now.now_ms, cost, &result, rejection)) {
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
        Owed owed;

        bool owes = !read(cost, &owed, [&] {
            Events::Found oldest;

            admitted = fits(cost, &oldest) || (cost == 0 && is_capped());

            if (!admitted) { describe_open(oldest, cost, rejection); }
        });

        if (owes) {
            admitted = owed.fits;
            *rejection = owed.verdict;
        }

        return admitted ? Outcome::kAdmitted : Outcome::kRejected;
    }

    double share() {
        uint64_t taken = 0;
        Owed owed;

        if (!read(0, &owed, [&] { taken = used(events_.oldest()); })) {
            return static_cast<double>(owed.used) / static_cast<double>(limit_);
        }

        return static_cast<double>(taken) / static_cast<double>(full());
    }

    /* Describes what the key has left. */
    void describe(Verdict *verdict) {
        Owed owed;

        if (!read(0, &owed, [&] { describe_open(events_.oldest(), 0, verdict); })) {
            *verdict = owed.verdict;
        }
    }

    void forget() {
        events_.table().amend([](uint64_t) { return Copy::kDead; });
    }

private:
    /* A key that owes, as a request sees it. */
    struct Owed {
        uint64_t used;
        bool fits;
        Verdict verdict;
    };

    /* Opens the key, and calls visit() until that has seen it at one moment.
     * False: it owes. */
    template <class Visit>
    [[gnu::always_inline]] bool read(uint64_t cost, Owed *owed, const Visit &visit) {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = events_.table().look();

            if (copy.kind == Copy::none) {
                events_.open_none();
            } else if (!events_.open(copy)) {
                if (events_.is_odd() && look_odd(claim_, events_.store().now.now_ms, cost, owed)) {
                    return false;
                }
                continue;
            }

            visit();

            if (!events_.is_torn() && (copy.kind == Copy::none || events_.is_same())) {
                return true;
            }
        }

        events_.forget();

        return true;
    }

    /* Both look at a key that seems to owe.  They are out of line, and open it
     * anew, as few keys do.  False: it does not, or has changed. */
    [[gnu::noinline]] static bool look_odd(const Claim &claim, uint64_t now_ms, uint64_t cost,
                                           Owed *owed) {
        return History(claim, now_ms).look_owing(cost, owed);
    }

    [[gnu::noinline]] static bool update_odd(const Claim &claim, uint64_t now_ms, uint64_t cost,
                                             Result *result, Verdict *rejection) {
        return History(claim, now_ms).update_owing(cost, result, rejection);
    }

    bool open_owing(Owing *owing) {
        Copy copy = events_.table().look();

        return copy.kind != Copy::none && !events_.open(copy) && events_.is_odd() && owing->open();
    }

    bool look_owing(uint64_t cost, Owed *owed) {
        Owing owing(this);

        if (!open_owing(&owing)) { return false; }

        owed->used = owing.used();
        owed->fits = owing.fits(cost);
        describe_owing(owing, cost, &owed->verdict);

        return !events_.is_torn() && events_.is_same();
    }

    bool update_owing(uint64_t cost, Result *result, Verdict *rejection) {
        Owing owing(this);

        if (!open_owing(&owing)) { return false; }

        if (!owing.fits(cost)) {
            *result = {Outcome::kRejected, 0};
            describe_owing(owing, cost, rejection);
            return !events_.is_torn() && events_.is_same();
        }

        if (!owing.settle(owing.owed() + cost)) { return false; }

        events_.keep();
        *result = {Outcome::kAdmitted, mark(owing.tick())};

        return true;
    }

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
            *result = {Outcome::kAdmitted, mark(events_.clock().tick)};
            return true;
        case Events::kRefused:
            *result = {Outcome::kRefused, refused_ms};
            return true;
        default:
            return false;
        }
    }

    void describe_owing(const Owing &owing, uint64_t cost, Verdict *verdict) {
        Events::Found oldest = events_.oldest();

        if (!owing.is_long()) {
            describe_open(oldest, cost, verdict);
            return;
        }

        describe_usage(
            {limit_, limit_, 1, owing.used(), limit_}, cost,
            [&](uint64_t room) {
                return room < owing.owed() ? owing.wait_ms(room)
                                           : wait_ms(oldest, room - owing.owed());
            },
            verdict);
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

    [[gnu::always_inline]] void describe_open(const Events::Found &oldest, uint64_t cost,
                                              Verdict *verdict) {
        uint64_t window_ms = events_.clock().window_ms;
        uint64_t taken = used(oldest);

        if (is_capped()) { taken = std::min(taken, full()); }

        describe_usage(
            {limit_, limit_, window_ms, taken, full()}, cost,
            [&](uint64_t room) { return wait_ms(oldest, room); }, verdict);
    }

    /* True if what is beyond the limit are attempts that do not count any more. */
    bool is_capped() const { return claim_.policy->counts_rejected && events_.clock().is_log; }

    /* Returns the ms until used <= room, which is less than now, from when on
     * it stays so if nothing is admitted. */
    [[gnu::always_inline]] uint64_t wait_ms(const Events::Found &oldest, uint64_t room) {
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

    const Claim &claim_;
};

} // namespace limit_sliding
