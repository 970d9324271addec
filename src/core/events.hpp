/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/claim.hpp"
#include "core/mix.hpp"
#include "core/ring.hpp"
#include "core/ring_step.hpp"
#include "core/table.hpp"
#include "core/zone_slots.hpp"

namespace limit_sliding {

/* The place where events are kept, and the time of those who read and write
 * them. */
struct EventStore {
    Zone *zone;
    const Policy *policy;
    SlotCounts *counts;
    bool is_brief; /* stay in the key's own ring: else torn; its window is the zone's, and
                      it is a counter's */
    Clock now;

    /* Returns the table as seen by a key, or one of its pages, of this hash. */
    Table<RingSlots> table_of(uint64_t hash) const {
        return {RingSlots(zone), zone->pairs, counts, hash,
                is_brief || policy->salt == 0
                    ? Epoch{now.epoch(), 0}
                    : OwnEpochs(*policy, now.now_ms).present(policy->window_ms)};
    }

    /* Obtains the copy of a hash.  Nothing is taken for over, as a slot for it,
     * before it is so by all clocks. */
    Copy obtain(uint64_t hash, uint64_t state, uint64_t *refused_ms,
                const Event *page = nullptr) const {
        return table_of(hash).obtain(RingStep(zone, *policy, now.behind(), page),
                                     policy->full == WhenFull::kEvict, state, refused_ms);
    }
};

/*
 * The events of one key, of one window.
 *
 * The key's slot has a ring of its newest events.  The slot's state is their
 * number, a name that the key has from this slot's first event on, and whether
 * units of closed events were given back (credits.hpp).
 *
 * The units of an event are its total less the total of the event before it.
 * When an event that still counts is about to lose the latter's place in the
 * ring, it is copied to a page: a slot of the same table, found by the key's
 * name and the page's number, that has `kPageEvents` events in a row and, in
 * its first place, the event before them.  They are all in the ring at that
 * time, closed, so a page is written as a whole before it is confirmed, and
 * never changes: whoever writes it, however late, writes the same.  Events that
 * are over at that time are left out: the event before the others stands in
 * their places.  Pages expire, and are evicted, as any other slot; an event
 * whose page is missing is over, as are all before it.
 */
class Events {
public:
    Events(const EventStore &store, uint64_t hash) : store_(store), hash_(hash) {}

    enum Recorded { kRecorded, kLost, kRefused };

    Table<RingSlots> table() const { return store_.table_of(hash_); }

    const EventStore &store() const { return store_; }
    uint64_t hash() const { return hash_; }

    /*
     * Returns the time of the store or, if that is later, of the newest event.
     */
    const Clock &clock() const { return clock_; }
    uint64_t count() const { return count_; }
    Event newest() const { return newest_; }
    uint64_t name() const { return copy_.bare_state() >> kNameShift; }
    /*
     * True if something has changed, or been left out, while the key was read.
     */
    bool is_torn() const { return torn_; }
    void tear() { torn_ = true; }

    /* Returns the first state of a key whose first event is of now. */
    uint64_t first_state() const { return store_.now.now_ms << kNameShift & Copy::kStateMask; }

    uint64_t tick_of(Event event) const { return event.tick(store_.now.tick); }

    /* Returns the key's copy, and makes one if there is none.  If there is no
     * place for it, tells for how many ms there will be none. */
    Copy obtain(uint64_t *refused_ms) const {
        Copy copy = table().find_ready_anywhere();

        if (copy.kind == Copy::confirmed) { return copy; }

        return store_.obtain(hash_, first_state(), refused_ms);
    }

    /* Makes the key's tag tell until when it owes, see Table::keep().  Epochs of
     * the zone's window last for longer. */
    void keep() const {
        if (store_.policy->salt != 0) {
            table().keep(RingStep(store_.zone, *store_.policy, store_.now));
        }
    }

    /* Opens a copy of the key.  False: it has changed meanwhile, and the caller
     * looks again, or it is_odd(): what stands in the place of its newest event,
     * newest(), is none. */
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
            odd_ = true;
            return false;
        }

        clock_.advance_to(tick_of(newest_));

        return true;
    }

    /* Opens a key that has no copy. */
    void open_none() {
        clock_ = store_.now;
        copy_ = {};
        torn_ = false;
        odd_ = false;
        count_ = 0;
        newest_ = {};
        page_ = Ring();
    }

    /* True if the key owes (owing.hpp) or, while its state is still the same, is
     * damaged. */
    bool is_odd() const { return odd_; }

    /* The key's ring, which has its debt. */
    const Ring &ring() const { return ring_; }

    /* Opens an odd key as of the event before the newest one, and as if that were
     * this. */
    void open_as(Event before, Event newest) {
        odd_ = false;
        newest_ = newest;
        clock_.advance_to(tick_of(before));
    }

    /* Lets the key's own time be a later one. */
    void advance_to(uint64_t tick) { clock_.advance_to(tick); }

    /* True if no event more is counted than when the key was opened.  Then all
     * that was read until now is of that lap: at most the next event has been
     * put.  Two laps later the events themselves would look the same. */
    bool is_same() const { return copy_.is_same(); }

    /* True if the newest event is as it was opened, too: neither has it more units, nor
     * was it closed, from when on others may give units of it back. */
    bool is_newest_same() const { return ring_.load(count_ - 1).word == newest_.word; }

    /* True if the key was idle for so long that its ring is neither worth
     * keeping nor safe to keep. */
    bool is_idle() const {
        constexpr uint64_t kIdle = 1 << 20;

        return count_ > 0 && tick_of(newest_) + clock_.span + kIdle < clock_.tick;
    }

    /* Forgets the key, which has a copy, as it was opened, unless it has changed since. */
    void forget() { copy_.store(Copy::kDead); }

    bool has_credits() const { return (copy_.bare_state() & kCredits) != 0; }

    /* Notes that units of this key have been given back.  False: look again. */
    bool note_credits() { return has_credits() || copy_.store(copy_.bare_state() | kCredits); }

    /* Returns the hash of this key's credits. */
    uint64_t credits_hash() const { return hash_of(kCountMask); }

    /* Returns the event of that number, below count(); it is not valid if it is
     * missing.  The oldest one in the ring only tells the total before the
     * next. */
    [[gnu::always_inline]] Event at(uint64_t position) {
        if (position + 1 == count_) { return newest_; }

        if (position + length() > count_) { return in_ring(position); }

        return open_page(position / kPageEvents) ? in_page(position % kPageEvents + 1) : Event{};
    }

    /* Returns the event before one that is not missing; if that is the key's
     * first one, an event that is not valid, of total 0. */
    Event before(uint64_t position) {
        if (position == 0) { return {}; }

        if (position + length() > count_) { return in_ring(position - 1); }

        Event event = in_page(position % kPageEvents);

        /* the page has gone since the event was read */
        torn_ |= !event.is_valid();

        return event;
    }

    /* An event and its place.  With `position` count() there is none. */
    struct Found {
        uint64_t position;
        Event event;
        uint64_t own;   /* units of the event */
        uint64_t later; /* units of those after it */
    };

    /* Returns the event of that number, which is not missing. */
    Found found(uint64_t position, Event event, Event previous) const {
        return {position, event, units(previous.total(), event.total()),
                units(event.total(), newest_.total())};
    }

    Found found(uint64_t position) {
        if (position == count_) { return {position, {}, 0, 0}; }

        Event event = at(position);

        return found(position, event, before(position));
    }

    /* Returns how many of the newest events are in the ring with the one before
     * them. */
    uint64_t step() const { return length() - 1; }

    /* Returns the number of the first event for which holds(event) is true, as
     * it then is for all later ones; count() if there is none.  It is false for
     * a missing event. */
    template <class Holds>
    uint64_t first(const Holds &holds) {
        uint64_t high = count_;
        uint64_t step = this->step();

        while (high > 0) {
            uint64_t low = high > step ? high - step : 0;
            Event event = at(low);

            if (!event.is_valid() || !holds(event)) { return first_between(low + 1, high, holds); }

            high = low;
            step *= 2;
        }

        return 0;
    }

    /* Returns the number of the first such event from this number on. */
    template <class Holds>
    uint64_t first_from(uint64_t low, const Holds &holds) {
        return first_between(low, count_, holds);
    }

    /* Returns the oldest event that counts. */
    Found oldest() {
        return found(first([&](Event event) { return !clock_.is_over(tick_of(event)); }));
    }

    /* Returns the units x w that are used, of which this is the oldest event. */
    uint64_t used(const Found &oldest) const {
        if (oldest.position == count_) { return 0; }

        return oldest.later * clock_.window_ms
               + oldest.own * clock_.weight_of(tick_of(oldest.event));
    }

    /* Returns an event in place of the newest one. */
    Event made(uint64_t tick, uint64_t total) const { return ring_.make(count_ - 1, tick, total); }

    /* Replaces the newest event, which is not closed, as it was opened. */
    Recorded replace_newest(Event next) { return replace_newest(newest_, next); }

    /* Replaces what was seen in its place. */
    Recorded replace_newest(Event seen, Event next) {
        return ring_.replace(count_ - 1, seen, next) ? kRecorded : kLost;
    }

    /* True if another event would replace none that counts in a counter's ring. */
    bool has_place() {
        return count_ + 1 < length() || clock_.is_over(tick_of(in_ring(count_ + 1 - length())));
    }

    /* Closes the newest event, so that its total stands, and puts another one,
     * of a tick not before it.  Pages are written for no events but those with the
     * newest `held` units. */
    template <bool kHolds = false>
    Recorded append(uint64_t tick, uint64_t cost, uint64_t *refused_ms, uint64_t held = 0) {
        Event next = ring_.make(count_, tick, newest_.total() + cost);

        if (count_ > 0 && !newest_.is_closed()) {
            Event seen = newest_;

            newest_ = {seen.word | Event::kClosed};

            if (!ring_.replace(count_ - 1, seen, newest_)) { return kLost; }
        }

        Event replaced = ring_.load(count_);

        if (ring_.is_event(replaced, count_) || !is_same()) { return kLost; }

        auto counts = [&](Event event, uint64_t total) {
            return !clock_.is_over(tick_of(event))
                   && (!kHolds || units(event.total(), total) < held);
        };

        if (count_ + 1 >= length() && !make_room(replaced, next.total(), counts, refused_ms)) {
            return *refused_ms == 0 ? kLost : kRefused;
        }

        if (!ring_.replace(count_, replaced, next)) { return kLost; }

        /* a slot whose events were over may have been given up before */
        return advance() || copy_.is_kept() ? kRecorded : kLost;
    }

    /* Gives up pages, a few at most, that have nothing but events that count, but
     * are before those with the newest `held` units: from `oldest` on, the first
     * event that counts.  So that missing events are before others, the first
     * pages go first. */
    void give_up_pages(uint64_t oldest, uint64_t held) {
        constexpr uint64_t kAtOnce = 16;

        uint64_t newest = newest_.total();
        uint64_t first
            = first_from(oldest, [&](Event event) { return units(event.total(), newest) < held; });
        uint64_t number = oldest / kPageEvents;
        uint64_t end = std::min(first / kPageEvents, number + kAtOnce);

        for (; number < end; number++) {
            Copy copy = store_.table_of(hash_of(number)).look();

            if (copy.kind != Copy::none) { copy.store(Copy::kDead); }
        }

        page_ = Ring();
    }

private:
    /* The state: name 25 | has credits 1 | number of events 36. */
    static constexpr uint64_t kCredits = 1ULL << kCountBits;
    static constexpr unsigned kNameShift = kCountBits + 1;

    /* The state of a page says only that it is there. */
    static constexpr uint64_t kPageState = 1;

    unsigned length() const { return RingSlots(store_.zone).ring_length(); }

    /* Counts an event more. */
    bool advance() {
        count_++;

        return copy_.store(copy_.bare_state() + 1);
    }

    /* Sets torn_ if the event has just been replaced. */
    Event in_ring(uint64_t position) {
        Event event = ring_.load(position);

        if (!ring_.is_event(event, position)) {
            torn_ = true;
            return {};
        }

        return event;
    }

    /* Returns the event in this place of the page that was opened last. */
    Event in_page(uint64_t place) const {
        Event event = page_.load(place);

        return page_.is_own(event) ? event : Event{};
    }

    /* Opens a page. False: there is none. */
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

    template <class Holds>
    uint64_t first_between(uint64_t low, uint64_t high, const Holds &holds) {
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

    /*
     * Sees that nobody needs the event that is to be replaced in the ring any
     * more: that there is a page with the event after it, as the replaced one
     * tells the total before that.  If the event to be replaced still counts,
     * then whoever put the newest one has written its page, which most often is
     * the same.  counts(event, total) tells whether an event counts beside those up
     * to that total.
     */
    template <class Counts>
    [[gnu::always_inline]] bool make_room(Event replaced, uint64_t total, const Counts &counts,
                                          uint64_t *refused_ms) {
        uint64_t oldest = count_ + 1 - length();

        if (oldest > 0 && !ring_.is_event(replaced, oldest - 1)) { return false; }

        Event event = in_ring(oldest);

        if (torn_) { return false; }

        /* a counter's ring has a place for all parts that count */
        if (!clock_.is_log || !counts(event, total)
            || (oldest % kPageEvents != 0 && counts(replaced, newest_.total()))) {
            return true;
        }

        return write_page(oldest, oldest == 0 ? event.with_total(0) : replaced, refused_ms);
    }

    /* Writes the page of the oldest event, as far as its events still count.
     * All must be of one lap: a page of later ones would mislead a search. */
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

        /* it is of a former history of the same name, unless we are too late */
        if (is_same()) { copy.store(Copy::kDead); }

        return false;
    }

    EventStore store_;
    uint64_t hash_;

    /* These are of the key as it was opened last. */
    Clock clock_;
    Copy copy_ = {};
    Ring ring_;
    uint64_t count_ = 0;
    Event newest_ = {};
    Ring page_; /* that was opened last */
    uint64_t page_number_ = 0;
    bool torn_ = false;
    bool odd_ = false;
};

} // namespace limit_sliding
