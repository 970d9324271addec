/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "core/base/hashes.hpp"
#include "core/policy/claim.hpp"
#include "core/rings/ring_step.hpp"
#include "core/table/ring.hpp"
#include "core/table/table.hpp"
#include "core/table/zone.hpp"

namespace limit_sliding {

/* The table that holds the events, with the time of the request. */
struct EventStore {
    Zone *zone;
    const Policy *policy;
    SlotCounts *counts;
    bool is_brief; /* reads only the key's ring, and no pages or refunds; a key that needs these
                      counts as torn; for counters with the zone's window */
    TickClock now;

    /* Returns the table for the hash of a key or of one of its pages. */
    Table<RingSlots> table_of(uint64_t hash) const {
        return {RingSlots(zone), counts, hash,
                is_brief || policy->salt == 0 ? TagEpoch{now.epoch(), 0}
                                              : KeyEpochs{*policy, now.now_ms}.present()};
    }

    /* Obtains the copy of a hash.  Other slots count as expired only once they have expired by the
     * clocks of all workers. */
    Copy obtain(uint64_t hash, uint64_t state, uint64_t *refused_ms,
                const Event *page = nullptr) const {
        return table_of(hash).obtain(RingStep(zone, *policy, now.behind(), page),
                                     policy->full == WhenFull::kEvict, state, refused_ms);
    }
};

/*
 * The events of one key in one window.
 *
 * The ring in the key's slot has the newest events.  The state of the slot has the number of
 * events; a name, which distinguishes the history from former ones of the same key; and a flag
 * that units of closed events were refunded (refunds.hpp).
 *
 * The units of an event are its total minus the total of the event before it.  Before the ring
 * loses the predecessor of an event that still counts, the event is copied to a page.  A page is a
 * slot of the same table, found by the name of the history and the number of the page.  It has
 * `kPageEvents` successive events, and in its first place their predecessor.  All of them are
 * closed and in the ring when the page is written.  So each worker that writes the page, however
 * late, writes the same words, and a confirmed page never changes.  Events that have expired
 * before are replaced by copies of the predecessor.  Pages expire and are evicted like other
 * slots.  If a page is missing, its events and all before them have expired.
 */
class Events {
public:
    Events(const EventStore &store, uint64_t hash) : store_(store), hash_(hash) {}

    enum Recorded { kRecorded, kLost, kRefused };

    Table<RingSlots> table() const { return store_.table_of(hash_); }

    const EventStore &store() const { return store_; }

    /* Returns the later one of the store's time and the time of the newest event. */
    const TickClock &clock() const { return clock_; }
    uint64_t count() const { return count_; }
    Event newest() const { return newest_; }
    uint64_t name() const { return copy_.bare_state() >> kNameShift; }
    /* Returns true if the key has changed since it was opened, or a part of it was not read. */
    bool is_torn() const { return torn_; }
    void tear() { torn_ = true; }

    uint64_t tick_of(Event event) const { return event.tick(store_.now.tick); }

    /* Returns the key's copy, or a new one.  If the table has no slot, sets the ms until one
     * expires. */
    Copy obtain(uint64_t *refused_ms) const {
        Copy copy = table().find_ready_anywhere();
        if (copy.kind == Copy::confirmed) { return copy; }
        const uint64_t name = store_.now.now_ms; /* of a history that begins now */
        return store_.obtain(hash_, name << kNameShift & Copy::kStateMask, refused_ms);
    }

    /* Opens a copy of the key.  Returns false if the key has changed.  If the place of the newest
     * event has another word, memory was damaged, and the key is deleted. */
    bool open(Copy copy) {
        open_none();
        copy_ = copy;
        ring_ = Ring(copy, length());
        count_ = copy.bare_state() & kCountMask;

        while (ring_.is_event(ring_.load(count_), count_)) {
            if (!advance()) { return false; }
        }

        if (count_ == 0) { return true; }

        newest_ = ring_.load(count_ - 1);

        if (!ring_.is_event(newest_, count_ - 1)) {
            forget();
            return false;
        }

        clock_.advance_to(tick_of(newest_));

        return true;
    }

    void open_none() {
        clock_ = store_.now;
        copy_ = {};
        torn_ = false;
        count_ = 0;
        newest_ = {};
        page_ = Ring();
    }

    /* Returns true if no event was added since the key was opened.  Then at most the next event
     * was written, so all reads were from one lap.  Events two laps later would look the same. */
    bool is_same() const { return copy_.is_same(); }

    /* Returns true if the newest event is unchanged as well: no units were added, and the event
     * was not closed, after which other workers may refund its units. */
    bool is_newest_same() const { return ring_.load(count_ - 1).word == newest_.word; }

    /* Returns true if the key was idle so long that all events expired and their ticks may wrap. */
    bool is_idle() const {
        constexpr uint64_t kIdle = 1 << 20;
        return count_ > 0 && tick_of(newest_) + clock_.span + kIdle < clock_.tick;
    }

    /* Deletes the key unless it has changed since it was opened. */
    void forget() { copy_.store(Copy::kDead); }

    bool has_refunds() const { return (copy_.bare_state() & kRefunds) != 0; }

    /* Records that units were refunded.  Returns false if the key has changed. */
    bool note_refunds() { return has_refunds() || copy_.store(copy_.bare_state() | kRefunds); }

    /* Returns the hash under which the refunds of the key are stored. */
    uint64_t refunds_hash() const { return hash_of(kCountMask); }

    /* Returns event number `position`, below count(); an invalid event if it is missing.  The
     * oldest event in the ring serves only as a predecessor, because its units are unknown. */
    [[gnu::always_inline]] Event at(uint64_t position) {
        if (position + 1 == count_) { return newest_; }
        if (position + length() > count_) { return in_ring(position); }
        return open_page(position / kPageEvents) ? in_page(position % kPageEvents + 1) : Event{};
    }

    /* Returns the predecessor of an event that is not missing; before the first event, an invalid
     * event of total 0. */
    Event before(uint64_t position) {
        if (position == 0) { return {}; }

        if (position + length() > count_) { return in_ring(position - 1); }

        Event event = in_page(position % kPageEvents);

        /* the page was evicted since the event was read */
        torn_ |= !event.is_valid();

        return event;
    }

    /* An event with its units.  If there is none, `position` is count(). */
    struct Found {
        uint64_t position;
        Event event;
        uint64_t own;   /* units of the event */
        uint64_t later; /* units of all later events */
    };

    /* Returns an event with its units; the event must not be missing. */
    Found found(uint64_t position, Event event, Event previous) const {
        return {position, event, units(previous.total(), event.total()),
                units(event.total(), newest_.total())};
    }

    Found found(uint64_t position) {
        if (position == count_) { return {position, {}, 0, 0}; }
        Event event = at(position);
        return found(position, event, before(position));
    }

    /* Returns how many of the newest events are in the ring together with their predecessor. */
    uint64_t step() const { return length() - 1; }

    /* Returns the number of the first event for which holds(event) is true; count() if there is
     * none. holds() must be true for all events after that, and is taken as false for a missing
     * event. */
    template <class Holds>
    uint64_t first(const Holds &holds) {
        uint64_t high = count_;
        uint64_t step = this->step();

        while (high > 0) {
            uint64_t low = high > step ? high - step : 0;
            Event event = at(low);

            if (!event.is_valid() || !holds(event)) { return first(low + 1, high, holds); }

            high = low;
            step *= 2;
        }

        return 0;
    }

    /* Does the same for the events from number `low` on; `high` if there is none before. */
    template <class Holds>
    uint64_t first(uint64_t low, uint64_t high, const Holds &holds) {
        while (low < high) {
            uint64_t middle = low + (high - low) / 2;
            Event event = at(middle);

            if (event.is_valid() && holds(event)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }

        return low;
    }

    /* Returns the first event of a tick or later. */
    Found since(uint64_t tick) {
        return found(first([&](Event event) { return tick_of(event) >= tick; }));
    }

    Found oldest() {
        return found(first([&](Event event) { return !clock_.is_over(tick_of(event)); }));
    }

    /* Returns the used units x w, given the oldest event that counts. */
    uint64_t used(const Found &oldest) const {
        if (oldest.position == count_) { return 0; }
        return oldest.later * clock_.window_ms
               + oldest.own * clock_.weight_of(tick_of(oldest.event));
    }

    /* Replaces the newest event, which must be open, if it is unchanged. */
    Recorded replace_newest(Event next) {
        assert(count_ != 0);
        return ring_.replace(count_ - 1, newest_, next) ? kRecorded : kLost;
    }

    /* The newest units that a log holds, and the number of the first event that counts. */
    struct Held {
        uint64_t units;
        uint64_t oldest;
    };

    /* Adds a cost to the newest event, if that is open and of the present tick.  Else closes the
     * newest event, which fixes its total, and adds another one.  With `held`, a log deletes pages
     * of older units, and copies no such events to pages. */
    Recorded record(uint64_t cost, uint64_t *refused_ms, const Held *held = nullptr) {
        assert(cost <= kNarrowMax);
        assert(count_ == 0 || clock_.tick >= tick_of(newest_));

        if (count_ > 0 && !newest_.is_closed() && tick_of(newest_) == clock_.tick) {
            return replace_newest(newest_.with_total(newest_.total() + cost));
        }

        if (held != nullptr && clock_.is_log && count_ % kPageEvents == 0) { give_up_pages(*held); }

        Event next = ring_.make(count_, clock_.tick, newest_.total() + cost);

        if (count_ > 0 && !newest_.is_closed()) {
            Event seen = newest_;

            newest_ = {seen.word | Event::kClosed};

            if (!ring_.replace(count_ - 1, seen, newest_)) { return kLost; }
        }

        Event replaced = ring_.load(count_);

        if (ring_.is_event(replaced, count_) || !is_same()) { return kLost; }

        auto counts = [&](Event event, uint64_t total) {
            return !clock_.is_over(tick_of(event))
                   && (held == nullptr || units(event.total(), total) < held->units);
        };

        if (count_ + 1 >= length() && !make_room(replaced, next.total(), counts, refused_ms)) {
            return *refused_ms == 0 ? kLost : kRefused;
        }

        if (!ring_.replace(count_, replaced, next)) { return kLost; }

        /* if all events had expired, another key may have taken the slot before */
        return advance() || copy_.is_kept() ? kRecorded : kLost;
    }

private:
    /* State: name 25 | has refunds 1 | number of events 36. */
    static constexpr uint64_t kRefunds = 1ULL << kCountBits;
    static constexpr unsigned kNameShift = kCountBits + 1;

    /* The state of a page; any other than 0 would do. */
    static constexpr uint64_t kPageState = 1;

    unsigned length() const { return RingSlots(store_.zone).ring_length(); }

    bool advance() {
        count_++;
        return copy_.store(copy_.bare_state() + 1);
    }

    /* Returns an event from the ring.  Sets torn_ if another event has replaced it. */
    Event in_ring(uint64_t position) {
        Event event = ring_.load(position);
        if (!ring_.is_event(event, position)) {
            torn_ = true;
            return {};
        }
        return event;
    }

    /* Returns an event from the page that was opened last. */
    Event in_page(uint64_t place) const {
        Event event = page_.load(place);
        return page_.is_of_owner(event) ? event : Event{};
    }

    /* Opens a page.  Returns false if the page is missing. */
    bool open_page(uint64_t number) {
        if (store_.is_brief) {
            torn_ = true;
            return false;
        }

        if (page_.is_none() || page_number_ != number) {
            Copy copy = store_.table_of(hash_of(number)).look();

            if (copy.kind == Copy::none) { return false; }

            page_ = Ring(copy, length());
            page_number_ = number;
        }

        return true;
    }

    /* Returns the hash of a page of this key's events. */
    uint64_t hash_of(uint64_t number) const {
        uint64_t page = name() << kNameShift | number;
        return mixed(hash_, page);
    }

    /* Deletes pages of events that count but are older than the newest `held` units.  The oldest
     * pages go first, at most kAtOnce of them, because all events before a missing one must be
     * missing. */
    void give_up_pages(const Held &held) {
        constexpr uint64_t kAtOnce = 16;

        uint64_t newest = newest_.total();
        uint64_t kept = first(held.oldest, count_, [&](Event event) {
            return units(event.total(), newest) < held.units;
        });
        uint64_t number = held.oldest / kPageEvents;
        uint64_t end = std::min(kept / kPageEvents, number + kAtOnce);

        for (; number < end; number++) {
            Copy copy = store_.table_of(hash_of(number)).look();

            if (copy.kind != Copy::none) { copy.store(Copy::kDead); }
        }

        page_ = Ring();
    }

    /* Makes sure that the event `replaced` may leave the ring.  If the next event counts, it must
     * be in a page, because the ring loses its predecessor.  If `replaced` counts as well, the
     * writer of the newest event has already written the page that has both, unless a page ends
     * between them.  counts(event, total) tells whether an event counts among the events up to
     * this total. */
    template <class Counts>
    [[gnu::always_inline]] bool make_room(Event replaced, uint64_t total, const Counts &counts,
                                          uint64_t *refused_ms) {
        uint64_t oldest = count_ + 1 - length();

        if (oldest > 0 && !ring_.is_event(replaced, oldest - 1)) { return false; }

        Event event = in_ring(oldest);

        if (torn_) { return false; }

        /* a counter's ring has a place for each part of its window */
        if (!clock_.is_log || !counts(event, total)
            || (oldest % kPageEvents != 0 && counts(replaced, newest_.total()))) {
            return true;
        }

        return write_page(oldest, oldest == 0 ? event.with_total(0) : replaced, refused_ms);
    }

    /* Writes the page of the oldest event in the ring.  All events must be from one lap, because a
     * page with later events would mislead a search. */
    bool write_page(uint64_t oldest, Event before, uint64_t *refused_ms) {
        Event events[kLogRing];
        uint64_t place = oldest % kPageEvents + 1;

        for (uint64_t i = 0; i < kLogRing; i++) {
            events[i] = i < place ? before : in_ring(oldest + i - place);
        }

        if (torn_ || !is_same()) { return false; }

        Copy copy = store_.obtain(hash_of(oldest / kPageEvents), kPageState, refused_ms, events);

        if (copy.kind == Copy::none) { return false; }

        if (Ring(copy, length()).is_filled(place, events[place])) { return true; }

        /* the page is from a former history of the same name, unless this worker is late */
        if (is_same()) { copy.store(Copy::kDead); }

        return false;
    }

    EventStore store_;
    uint64_t hash_;

    /* State of the key as opened last. */
    TickClock clock_;
    Copy copy_ = {};
    Ring ring_;
    uint64_t count_ = 0;
    Event newest_ = {};
    Ring page_; /* the page opened last */
    uint64_t page_number_ = 0;
    bool torn_ = false;
};

} // namespace limit_sliding
