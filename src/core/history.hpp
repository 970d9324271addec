/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_CORE_HISTORY_HPP
#define LIMIT_SLIDING_CORE_HISTORY_HPP

#include <algorithm>
#include <cstdint>

#include "events.hpp"
#include "limiter.h"

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
 * An object is one key at one moment, under one limit.
 */
class History : private Events {
public:
    /* `now_ms` is of the zone's time; `brief` is for update_ready(). */
    History(const limit_sliding_claim_t &claim, uint64_t now_ms,
            bool brief = false)
        : Events(claim, now_ms, brief), limit_(claim.limit),
          may_evict_(claim.policy->full == LIMIT_SLIDING_EVICT)
    {
    }

    struct Result {
        limit_sliding_outcome_t outcome;
        uint64_t state; /* ADMITTED: tick of the event; REFUSED: ms */
    };

    /*
     * As Table's: decides, and records what it admits, if the key is in its
     * first line and all that counts in its ring.  Else, or if another request
     * was faster, returns false: update() does it.
     */
    bool update_ready(uint32_t cost, Result *result)
    {
        if (cost == 0 || cost > limit_) {
            return false;
        }

        Copy copy = table(hash_).find_ready();

        return copy.kind == Copy::confirmed && update_copy(copy, cost, result);
    }

    /* The same, whatever it takes. */
    Result update(uint32_t cost)
    {
        if (cost == 0 || cost > limit_) {
            return {look(cost), 0};
        }

        for (;;) {
            Result result = {LIMIT_SLIDING_REFUSED, 0};
            Copy copy = table(hash_).find_ready();

            if (copy.kind != Copy::confirmed) {
                copy = table(hash_).obtain(
                    step(), may_evict_,
                    now_.tick << kCountBits & Copy::kStateMask, &result.state);
            }

            if (copy.kind == Copy::none || update_copy(copy, cost, &result)) {
                return result;
            }
        }
    }

    /* Decides only. */
    limit_sliding_outcome_t look(uint32_t cost)
    {
        bool admitted = false;

        read([&] { admitted = fits(cost); });

        return admitted ? LIMIT_SLIDING_ADMITTED : LIMIT_SLIDING_REJECTED;
    }

    double share()
    {
        uint64_t taken = 0;

        read([&] { taken = used(); });

        return static_cast<double>(taken) / static_cast<double>(full());
    }

    void describe(uint32_t cost, limit_sliding_verdict_t *verdict)
    {
        read([&] { describe_open(cost, verdict); });
    }

    /*
     * Takes back what an admission of this moment recorded, unless later events
     * stand on it: then it stays until it expires.
     */
    void refund(uint64_t tick, uint32_t cost)
    {
        for (;;) {
            Copy copy = table(hash_).look();

            if (copy.kind == Copy::none) {
                return;
            }

            if (!open(copy)) {
                continue;
            }

            if (count_ == 0 || newest_.is_closed()
                || newest_.tick(now_.tick) != tick
                || ring_.replace(count_ - 1, newest_,
                                 newest_.with_total(newest_.total() - cost))) {
                return;
            }
        }
    }

    void forget()
    {
        table(hash_).amend([](uint64_t) { return Copy::kDead; });
    }

private:
    /* False: it has changed meanwhile, the caller looks again. */
    bool update_copy(Copy copy, uint32_t cost, Result *result)
    {
        if (!open(copy)) {
            return false;
        }

        if (is_idle()) {
            copy_.store(Copy::kDead);
            return false;
        }

        bool admitted = fits(cost);

        if (torn_ || !is_same()) {
            return false;
        }

        if (!admitted) {
            *result = {LIMIT_SLIDING_REJECTED, 0};
            return true;
        }

        uint64_t refused_ms = 0;

        switch (record(cost, &refused_ms)) {
        case kRecorded:
            *result = {LIMIT_SLIDING_ADMITTED, clock_.tick};
            return true;
        case kRefused:
            *result = {LIMIT_SLIDING_REFUSED, refused_ms};
            return true;
        default:
            return false;
        }
    }

    uint64_t full() const { return limit_ * clock_.window_ms; }

    bool fits(uint32_t cost)
    {
        if (cost > limit_) {
            return false;
        }

        return is_over_before(limit_ - cost)
               || used() <= (limit_ - cost) * clock_.window_ms;
    }

    /*
     * Are all units but the newest `room` over?  Mostly a log tells it by one
     * event, as most are of one unit.  That must be recent: totals wrap.
     */
    bool is_over_before(uint32_t room)
    {
        if (!clock_.is_log || count_ <= room) {
            return false;
        }

        Event event = at(count_ - 1 - room);

        if (!event.is_valid()) {
            return false;
        }

        uint64_t then = event.tick(now_.tick);

        return clock_.is_over(then) && !clock_.is_over(then + clock_.span)
               && units(event.total(), newest_.total()) <= room;
    }

    void describe_open(uint32_t cost, limit_sliding_verdict_t *verdict)
    {
        uint64_t taken = used();
        uint64_t wanted = taken + cost * clock_.window_ms;
        uint64_t room = full() - std::min(taken, full());

        verdict->limit = limit_;
        verdict->remaining = static_cast<uint32_t>(room / clock_.window_ms);
        verdict->excess = wanted > full() ? thousandths(wanted - full()) : 0;
        verdict->delay_ms = 0;
        verdict->reset_ms
            = taken == 0 ? 0 : wait_ms(limit_ - verdict->remaining - 1);
        verdict->retry_after_ms = cost > limit_ ? LIMIT_SLIDING_NEVER
                                  : cost == verdict->remaining + 1u
                                      ? verdict->reset_ms
                                  : wanted > full() ? wait_ms(limit_ - cost)
                                                    : 0;
    }

    /* Requests in 1/1000, rounded up, of units x w. */
    uint64_t thousandths(uint64_t taken) const
    {
        uint64_t w = clock_.window_ms;

        return taken / w * 1000 + (taken % w * 1000 + w - 1) / w;
    }

    enum Recorded { kRecorded, kLost, kRefused };

    Recorded record(uint32_t cost, uint64_t *refused_ms)
    {
        Event next = ring_.make(count_, clock_.tick, newest_.total() + cost);

        if (count_ > 0 && !newest_.is_closed()) {
            bool is_same = newest_.tick(now_.tick) == clock_.tick;
            Event seen = newest_;

            newest_ = is_same ? seen.with_total(seen.total() + cost)
                              : Event{seen.word | Event::kClosed};

            if (!ring_.replace(count_ - 1, seen, newest_)) {
                return kLost;
            }

            if (is_same) {
                return kRecorded;
            }
        }

        Event replaced = ring_.load(count_);

        if (ring_.is_event(replaced, count_) || !is_same()) {
            return kLost;
        }

        if (count_ + 1 >= length() && !make_room(replaced, refused_ms)) {
            return *refused_ms == 0 ? kLost : kRefused;
        }

        if (!ring_.replace(count_, replaced, next)) {
            return kLost;
        }

        advance();

        return kRecorded;
    }

    /*
     * Makes the event that is to be replaced in the ring one that nobody needs:
     * copies the one after it, the total before which it tells.
     */
    bool make_room(Event replaced, uint64_t *refused_ms)
    {
        uint64_t position = count_ + 1 - length();
        uint64_t before = position == 0 ? 0 : replaced.total();

        if (position > 0 && !ring_.is_event(replaced, position - 1)) {
            return false;
        }

        Event event = in_ring(position);

        if (torn_ || !is_same()) {
            return false;
        }

        if (clock_.is_over(event.tick(now_.tick))) {
            return true;
        }

        if (brief_) {
            return false;
        }

        Copy copy = table(old_hash(position / length()))
                        .obtain(step(), may_evict_, 1 + before, refused_ms);

        if (copy.kind == Copy::none) {
            return false;
        }

        Ring old(copy, length());

        if (position % length() != 0) {
            old.keep(position - 1, replaced, now_.tick);
        }

        old.keep(position, event, now_.tick);

        return true;
    }

    uint32_t limit_;
    bool may_evict_;
};

} // namespace limit_sliding

#endif
