/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/events.hpp"
#include "core/mix.hpp"
#include "core/ring.hpp"
#include "core/ring_step.hpp"
#include "core/table.hpp"

namespace limit_sliding {

/*
 * The units that were given back of a key's closed events.
 *
 * Time is cut into parts, at most `kParts` of a window; units that are given
 * back are added up by the part in which they were admitted.  A part has the
 * tick of its beginning, so a credit ends no later than its event, and at most
 * a 64th of a window (a log's) before it: nothing is admitted for it that
 * should not be.
 *
 * Parts stand in the rings of slots of the same table, as many in a slot as a
 * ring has places, found by the key's name and their number.  Each is one word
 * like an event's, with units instead of the total, and only grows.  If a slot
 * finds no place, or is evicted, nothing is given back.
 *
 * An object is the credits of one key at one moment.
 */
class Credits {
    static constexpr uint64_t kParts = 64;

public:
    /* `hash` is Events::credits_hash(), `store.now` the key's clock. */
    Credits(const EventStore &store, uint64_t hash)
        : store_(store), hash_(hash), length_(RingSlots(store.zone).ring_length()),
          grain_((store.now.span + kParts - 1) / kParts) {}

    /* Returns the ticks of a part. */
    uint64_t grain() const { return grain_; }

    /* Returns units x w that are to be subtracted from what is used now.  No
     * more are subtracted than let totals of events wrap within a window:
     * several workers may give back at once, so only the one who admits can
     * tell how many they are. */
    uint64_t used() const {
        const Clock &now = store_.now;
        uint64_t given = 0;

        visit([&](uint64_t begin, uint64_t units) { given += units * now.weight_of(begin); });

        return std::min(given, kMax * now.window_ms);
    }

    /* All parts that count, as they were read at once. */
    class Snapshot {
    public:
        explicit Snapshot(const Credits &credits) : parts_{} {
            credits.visit([this](uint64_t begin, uint64_t given) {
                parts_[count_++] = {begin, given};
            });
        }

        /* Returns the units of all that begin at a tick or later. */
        uint64_t since(uint64_t tick) const {
            uint64_t total = 0;

            for (unsigned i = count_; i > 0 && begin(i - 1) >= tick; i--) {
                total += parts_[i - 1].given;
            }

            return total;
        }

        /* As Credits::used(), but as of a moment that is not earlier. */
        uint64_t used(const Clock &now) const {
            uint64_t given = 0;

            for (unsigned i = 0; i < count_; i++) {
                if (!now.is_over(begin(i))) { given += parts_[i].given * now.weight_of(begin(i)); }
            }

            return std::min(given, kMax * now.window_ms);
        }

        /* Parts are numbered from the oldest on. */
        unsigned count() const { return count_; }
        uint64_t begin(unsigned i) const { return parts_[i].begin; }

    private:
        struct Part {
            uint64_t begin;
            uint64_t given;
        };

        /* a window may have a fraction of a part at either end */
        Part parts_[kParts + 2];
        unsigned count_ = 0;
    };

    /* Gives back units that were admitted at a tick. */
    void add(uint64_t tick, uint64_t given) const {
        uint64_t number = tick / grain_;
        uint64_t refused_ms = 0;

        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = store_.obtain(hash_of(number / length_), kState, &refused_ms);

            if (copy.kind == Copy::none) { return; }

            /* Others may take the slot while there is nothing in it: what was
             * read may be replaced only if the slot was ours after that. */
            Ring ring(copy, length_);
            Event seen = ring.load(number);
            Event next = ring.is_own(seen)
                             ? seen.with_total(std::min(seen.total() + given, Event::kTotalMask))
                             : ring.make(0, number * grain_, given);

            if (copy.is_same() && ring.replace(number, seen, next)) { return; }
        }
    }

private:
    /* So totals do not wrap if a limit is used, and as much was given back. */
    static constexpr uint64_t kMax = Event::kTotalMask / 2;

    static_assert(kNarrowMax + kMax <= Event::kTotalMask, "what is used and what was given back");

    /* The state of such a slot says only that it is there. */
    static constexpr uint64_t kState = 1;

    uint64_t hash_of(uint64_t slot) const { return mixed(hash_, slot); }

    /* Calls visit(begin, units) for all parts that are not over, in order. */
    template <class Visit>
    void visit(const Visit &visit_part) const {
        const Clock &now = store_.now;
        uint64_t last = now.tick / grain_;
        uint64_t first = (now.tick - std::min(now.tick, now.span)) / grain_;

        for (uint64_t slot = first / length_; slot <= last / length_; slot++) {
            Copy copy = store_.table_of(hash_of(slot)).look();

            if (copy.kind == Copy::none) { continue; }

            Ring ring(copy, length_);
            uint64_t end = std::min(last, (slot + 1) * length_ - 1);

            for (uint64_t i = std::max(first, slot * length_); i <= end; i++) {
                Event part = ring.load(i);

                if (ring.is_own(part) && !now.is_over(i * grain_)) {
                    visit_part(i * grain_, part.total());
                }
            }
        }
    }

    EventStore store_;
    uint64_t hash_;
    unsigned length_;
    uint64_t grain_; /* ticks of a part */
};

} // namespace limit_sliding
