/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cassert>
#include <cstdint>

#include "core/base/atomics.hpp"
#include "core/policy/policy.hpp"
#include "core/table/slot.hpp"

namespace limit_sliding {

/* The number of bits of a tick: enough for windows of 30 days in ms. */
constexpr unsigned kTickBits = 36;

/* The number of events in the ring of a log, and in a page of older events. */
constexpr unsigned kLogRing = 14;
constexpr unsigned kPageEvents = kLogRing - 1;

/*
 * An event: a tick in which a key used units, and the total of its used units up to then.  An
 * event is one word in the ring of a slot:
 *
 *     generation 2 | valid 1 | lap 1 | closed 1 | total 23 | tick 36
 *
 * Event number p is stored at place p modulo the length of the ring.  The lap, the last bit of p
 * divided by the length, distinguishes p from the event that it replaces.  The generation is that
 * of the slot's tag, and invalidates the events of the slot's former key.
 */
struct Event {
    static constexpr unsigned kTotalBits = 23;
    static constexpr uint64_t kTotalMask = (1u << kTotalBits) - 1;
    static constexpr uint64_t kTickMask = (1ULL << kTickBits) - 1;
    static constexpr uint64_t kClosed = 1ULL << (kTickBits + kTotalBits);
    static constexpr unsigned kLapShift = kTickBits + kTotalBits + 1;
    static constexpr unsigned kValidShift = kLapShift + 1;
    static constexpr uint64_t kValid = 1ULL << kValidShift;
    static constexpr unsigned kGenerationShift = kValidShift + 1;

    uint64_t word;

    bool is_valid() const { return (word & kValid) != 0; }
    bool is_closed() const { return (word & kClosed) != 0; }
    uint64_t total() const { return word >> kTickBits & kTotalMask; }

    /* Returns the full tick, which exceeds `now` at most by the lag of clocks.  The 36 bits do not
     * wrap within a ring, because a key that was idle for long gets a new ring. */
    uint64_t tick(uint64_t now) const {
        constexpr uint64_t kAhead = kWindowMaxMs + (1 << 20);
        uint64_t age = (now + kAhead - word) & kTickMask;
        return now + kAhead - age;
    }

    Event with_total(uint64_t total) const {
        return {(word & ~(kTotalMask << kTickBits)) | (total & kTotalMask) << kTickBits};
    }
};

/* The lowest bits of the state of a slot with a ring are the number of events. */
constexpr unsigned kCountBits = 36;
constexpr uint64_t kCountMask = (1ULL << kCountBits) - 1;

/* Returns the units from one total to a later one. */
inline uint64_t units(uint64_t from, uint64_t to) { return (to - from) & Event::kTotalMask; }

/* The ring behind a slot, for one copy of a key. */
class Ring {
public:
    Ring() : slot_(nullptr), generation_(0), length_(0) {}

    Ring(const Copy &copy, unsigned length)
        : slot_(copy.slot), generation_(tag::generation(copy.tag)), length_(length) {
        assert(length_ > 1);
    }

    bool is_none() const { return slot_ == nullptr; }

    Event load(uint64_t position) const { return {word(position).load()}; }

    /* Returns true if the word is event number `position` of the key. */
    bool is_event(Event event, uint64_t position) const {
        return event.word >> Event::kLapShift == (generation_ << 2 | 2 | lap(position));
    }

    /* Returns true if the word is any event of the slot's key, in a ring or in a page. */
    bool is_of_owner(Event event) const {
        return event.is_valid() && event.word >> Event::kGenerationShift == generation_;
    }

    Event make(uint64_t position, uint64_t tick, uint64_t total) const {
        return {(generation_ << 2 | 2 | lap(position)) << Event::kLapShift
                | (total & Event::kTotalMask) << kTickBits | (tick & Event::kTickMask)};
    }

    bool replace(uint64_t position, Event seen, Event next) const {
        return word(position).compare_exchange_strong(seen.word, next.word);
    }

    /* Empties the ring of a tentative copy, or fills it as a page, one event for each place.
     * Several processes may do so at once.  Once a process confirms the copy, the places belong to
     * its key.  A late process then cannot write, because the word that it has read was replaced
     * before. */
    void prepare(const Copy &copy, const Event *page) const {
        assert(page == nullptr || length_ == kLogRing);

        for (unsigned i = 0; i < length_; i++) {
            Event next = {generation_ << Event::kGenerationShift
                          | (page != nullptr ? in_page(page[i]) : 0)};

            for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
                Event seen = load(i);

                if (seen.word == next.word || slot_->state.load() != copy.state
                    || replace(i, seen, next)) {
                    break;
                }
            }
        }
    }

    /* Returns true if a page has this event in this place. */
    bool is_filled(uint64_t place, Event event) const {
        return load(place).word == (generation_ << Event::kGenerationShift | in_page(event));
    }

private:
    /* Encodes an event for a page, without the generation. */
    static uint64_t in_page(Event event) {
        constexpr uint64_t kBits = (1ULL << (kTickBits + Event::kTotalBits)) - 1;
        return (event.word & kBits) | Event::kValid;
    }

    Atomic<uint64_t> &word(uint64_t position) const {
        auto words = reinterpret_cast<Atomic<uint64_t> *>(slot_ + 1);
        return words[position % length_];
    }

    uint64_t lap(uint64_t position) const { return position / length_ & 1; }

    Slot *slot_;
    uint64_t generation_;
    unsigned length_;
};

static_assert(Event::kGenerationShift + tag::kGenerationBits <= 64, "a word");
static_assert(kNarrowMax < Event::kTotalMask / 2 + 1, "totals do not wrap within a window");

} // namespace limit_sliding
