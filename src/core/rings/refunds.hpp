/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "core/base/hashes.hpp"
#include "core/rings/events.hpp"
#include "core/rings/ring_step.hpp"
#include "core/table/ring.hpp"
#include "core/table/table.hpp"

namespace limit_sliding {

/*
 * The refunded units of a key's closed events.
 *
 * Time is cut into parts, at most `kParts` a window.  Refunds are summed by the part in which
 * their units were admitted.  The time of a part is its begin, so a refund never outlives its
 * event; in a log the refund ends up to 1/64 window earlier.  The key can thus admit too little,
 * but never too much.
 *
 * The table that has the key also has slots for its parts.  The hash of such a slot depends on the
 * key, the name of the history (events.hpp) and the number of the slot; the ring of the slot has
 * successive parts.  A part is one word like an event, with refunded units in place of the total;
 * the units only grow.  If the table has no room for a slot, or evicts the slot, its refunds are
 * lost.
 *
 * An object has the refunds of one key at one moment.
 */
class Refunds {
    static constexpr uint64_t kParts = 64;

public:
    /* `hash` is Events::refunds_hash(), `store.now` the key's clock. */
    Refunds(const EventStore &store, uint64_t hash)
        : store_(store), hash_(hash), length_(RingSlots(store.zone).ring_length()),
          grain_((store.now.span + kParts - 1) / kParts) {}

    uint64_t grain() const { return grain_; }

    /* Returns the units x w to subtract from the used units.  Several workers may refund the same
     * units at once.  So only the newest kMax units count, which bounds the units that the key
     * admits instead, and totals of events do not wrap within a window. */
    uint64_t used() const {
        const TickClock &now = store_.now;
        uint64_t full = 0;
        uint64_t fading = 0;
        visit([&](uint64_t begin, uint64_t units) {
            (now.weight_of(begin) == now.window_ms ? full : fading) += units;
        });
        full = std::min(full, kMax);
        return full * now.window_ms + std::min(fading, kMax - full) * now.weight;
    }

    /* A copy of all parts that count. */
    class Snapshot {
    public:
        /* No parts. */
        Snapshot() = default;

        explicit Snapshot(const Refunds &refunds) {
            refunds.visit([this](uint64_t begin, uint64_t given) {
                assert(count_ < kParts + 2);
                parts_[count_++] = {begin, given};
            });
        }

        /* Returns the units of all parts that begin at a tick or later. */
        uint64_t since(uint64_t tick) const {
            uint64_t total = 0;
            for (unsigned i = count_; i > 0 && begin(i - 1) >= tick; i--) {
                total += parts_[i - 1].given;
            }
            return total;
        }

        /* Returns how many of these units used() subtracts, apart from weights. */
        uint64_t used_since(uint64_t tick) const { return std::min(since(tick), kMax); }

        /* Returns the number of parts; part 0 is the oldest. */
        unsigned count() const { return count_; }
        uint64_t begin(unsigned i) const { return parts_[i].begin; }

    private:
        struct Part {
            uint64_t begin;
            uint64_t given;
        };

        /* the window may begin and end within a part */
        Part parts_[kParts + 2] = {};
        unsigned count_ = 0;
    };

    /* Refunds units that were admitted at a tick. */
    void add(uint64_t tick, uint64_t given) const {
        assert(given <= kNarrowMax);

        uint64_t number = tick / grain_;
        uint64_t refused_ms = 0;

        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = store_.obtain(hash_of(number / length_), kState, &refused_ms);

            if (copy.kind == Copy::none) { return; }

            /* Another key may take a slot that has no refunds yet.  The word that was read belongs
             * to this key only if the slot still belongs to this key after the read. */
            Ring ring(copy, length_);
            Event seen = ring.load(number);
            Event next = ring.is_of_owner(seen)
                             ? seen.with_total(std::min(seen.total() + given, Event::kTotalMask))
                             : ring.make(0, number * grain_, given);

            if (copy.is_same() && ring.replace(number, seen, next)) { return; }
        }
    }

private:
    /* The most units that used() subtracts.  A total has room for the limit and these units. */
    static constexpr uint64_t kMax = Event::kTotalMask / 2;

    static_assert(kNarrowMax + kMax <= Event::kTotalMask,
                  "a total holds the used and the refunded units");

    /* The state of slots of refunds; any other than 0 would do. */
    static constexpr uint64_t kState = 1;

    uint64_t hash_of(uint64_t slot) const { return mixed(hash_, slot); }

    /* Calls visit_part(begin, units) for all parts that have not expired, the oldest first.
     * `begin` is the first tick of a part. */
    template <class Visit>
    void visit(const Visit &visit_part) const {
        const TickClock &now = store_.now;
        uint64_t last = now.tick / grain_;
        uint64_t first = (now.tick - std::min(now.tick, now.span)) / grain_;

        for (uint64_t slot = first / length_; slot <= last / length_; slot++) {
            Copy copy = store_.table_of(hash_of(slot)).look();

            if (copy.kind == Copy::none) { continue; }

            Ring ring(copy, length_);
            uint64_t end = std::min(last, (slot + 1) * length_ - 1);

            for (uint64_t i = std::max(first, slot * length_); i <= end; i++) {
                Event part = ring.load(i);

                if (ring.is_of_owner(part) && !now.is_over(i * grain_)) {
                    visit_part(i * grain_, part.total());
                }
            }
        }
    }

    EventStore store_;
    uint64_t hash_;
    unsigned length_;
    uint64_t grain_; /* length of a part in ticks */
};

} // namespace limit_sliding
