/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/atomics.hpp"
#include "core/policy.hpp"
#include "core/slot.hpp"

namespace limit_sliding {

/* Enough for a ring of windows of 30 d in ms. */
constexpr unsigned kTickBits = 36;

/* Events in the ring of a log, and in a page of its older events. */
constexpr unsigned kLogRing = 14;
constexpr unsigned kPageEvents = kLogRing - 1;

/*
 * A tick in which a key used something, and all that the key used up to then.
 * An event is one word, in the ring of a slot:
 *
 *     generation 2 | valid 1 | lap 1 | closed 1 | total 23 | tick 36
 *
 * Events are numbered from 0; number p stands at p modulo the ring's length and
 * lap, the last bit of p divided by it, tells it from the event it replaces.
 * The generation is that of the slot's tag: what the slot's former owner left
 * is no event.
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

    /* Returns the tick.  It is later than `now` by a little at most, or by a window
     * if it is to come (owing.hpp).  It wraps, but not within a ring: a key that
     * was idle for long gets a new one. */
    uint64_t tick(uint64_t now) const {
        constexpr uint64_t kAhead = kWindowMaxMs + (1 << 20);
        uint64_t age = (now + kAhead - word) & kTickMask;

        return now + kAhead - age;
    }

    /* Returns the same event with another total. */
    Event with_total(uint64_t total) const {
        return {(word & ~(kTotalMask << kTickBits)) | (total & kTotalMask) << kTickBits};
    }
};

/* The state of a slot with a ring begins with the number of the key's events. */
constexpr unsigned kCountBits = 36;
constexpr uint64_t kCountMask = (1ULL << kCountBits) - 1;

/* Returns the units from one total to a later one. */
inline uint64_t units(uint64_t from, uint64_t to) { return (to - from) & Event::kTotalMask; }

/* The words behind a slot whose copy is the key's. */
class Ring {
public:
    Ring() : slot_(nullptr), generation_(0), length_(0) {}

    Ring(const Copy &copy, unsigned length)
        : slot_(copy.slot), generation_(tag::generation(copy.tag)), length_(length) {}

    bool is_none() const { return slot_ == nullptr; }
    unsigned length() const { return length_; }

    Event load(uint64_t position) const { return {word(position).load()}; }

    /* True if this is the event of that number. */
    bool is_event(Event event, uint64_t position) const {
        return event.word >> Event::kLapShift == (generation_ << 2 | 2 | lap(position));
    }

    /* True if this is an event of the slot's owner, whatever its number or
     * page. */
    bool is_own(Event event) const {
        return event.is_valid() && event.word >> Event::kGenerationShift == generation_;
    }

    /* True if this is a debt of the slot's owner (ring_debt.hpp). */
    bool is_debt(Event event) const {
        uint64_t head = generation_ << 1;

        return event.word >> Event::kValidShift == head && event.word != head << Event::kValidShift;
    }

    Event make_debt(uint64_t bits) const { return {generation_ << Event::kGenerationShift | bits}; }

    Event make(uint64_t position, uint64_t tick, uint64_t total) const {
        return {(generation_ << 2 | 2 | lap(position)) << Event::kLapShift
                | (total & Event::kTotalMask) << kTickBits | (tick & Event::kTickMask)};
    }

    /* Replaces what load() has returned. */
    bool replace(uint64_t position, Event seen, Event next) const {
        return word(position).compare_exchange_strong(seen.word, next.word);
    }

    /* Makes the ring of a tentative copy empty. */
    void wipe(const Copy &copy) const {
        write(copy, [](unsigned) { return uint64_t{0}; });
    }

    /* Makes a tentative copy a page of these events, one for each place. */
    void fill(const Copy &copy, const Event *events) const {
        write(copy, [&](unsigned i) { return in_page(events[i]); });
    }

    /* True if a page has this event in that place. */
    bool is_filled(uint64_t place, Event event) const {
        return load(place).word == (generation_ << Event::kGenerationShift | in_page(event));
    }

private:
    /* Returns an event as it is in a page, without the generation. */
    static uint64_t in_page(Event event) {
        constexpr uint64_t kBits = (1ULL << (kTickBits + Event::kTotalBits)) - 1;

        return (event.word & kBits) | Event::kValid;
    }

    /* Writes wanted(i) into all places of a tentative copy.  Several processes
     * may do so at once.  As soon as one of them confirms the copy, the places
     * belong to its key: nobody else writes there, and who was about to fails,
     * because the word that it has seen was replaced before. */
    template <class Wanted>
    void write(const Copy &copy, const Wanted &wanted) const {
        for (unsigned i = 0; i < length_; i++) {
            Event next = {generation_ << Event::kGenerationShift | wanted(i)};

            for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
                Event seen = load(i);

                if (seen.word == next.word || slot_->state.load() != copy.state
                    || replace(i, seen, next)) {
                    break;
                }
            }
        }
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
