/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_CORE_CREDITS_HPP
#define LIMIT_SLIDING_CORE_CREDITS_HPP

#include <algorithm>
#include <cstdint>

#include "core/events.hpp"
#include "core/mix.hpp"
#include "core/ring.hpp"
#include "core/ring_step.hpp"
#include "core/table.hpp"

namespace limit_sliding {

/*
 * What was given back of a key's closed events.
 *
 * Time is cut into parts, at most `kParts` of a window; units that are given
 * back are added up by the part in which they were admitted.  A part has the
 * tick of its beginning, so a credit ends no later than the event that it is
 * of, and at most a 64th of a window (a log's) before it: nothing is admitted
 * for it that should not be.
 *
 * Parts stand in the rings of slots of the same table, as many in a slot as a
 * ring has places, found by the key's name and their number.  Each is one word,
 * made as an event's is with units in the place of the total, that only grows.
 * A slot that finds no place, or is evicted, gives nothing back.
 *
 * An object is the credits of one key at one moment.
 */
class Credits {
    static constexpr uint64_t kParts = 64;

public:
    /* `hash` is Events::credits_hash(), `store.now` the key's clock. */
    Credits(const EventStore &store, uint64_t hash)
        : store_(store), hash_(hash),
          length_(RingSlots(store.zone).ring_length()),
          grain_((store.now.span + kParts - 1) / kParts)
    {
    }

    /*
     * Units x w that are to be subtracted from what is used now.  So many as
     * would make totals of events wrap within a window are not subtracted:
     * several may give back at once, so that only who admits can tell.
     */
    uint64_t used() const
    {
        const Clock &now = store_.now;
        uint64_t given = 0;

        visit([&](uint64_t begin, uint64_t units) {
            bool is_whole = begin + now.span > now.tick;

            given += units * (is_whole ? now.window_ms : now.weight);
        });

        return std::min(given, kMax * now.window_ms);
    }

    /* All parts, as they were read at once. */
    class Parts {
    public:
        explicit Parts(const Credits &credits) : parts_{}
        {
            credits.visit([this](uint64_t begin, uint64_t given) {
                parts_[count_++] = {begin, given};
            });
        }

        /* Units of all that begin at a tick or later. */
        uint64_t since(uint64_t tick) const
        {
            uint64_t total = 0;

            for (unsigned i = count_; i > 0 && begin(i - 1) >= tick; i--) {
                total += parts_[i - 1].given;
            }

            return total;
        }

        /* From the oldest on. */
        unsigned count() const { return count_; }
        uint64_t begin(unsigned i) const { return parts_[i].begin; }

    private:
        struct Part {
            uint64_t begin;
            uint64_t given;
        };

        /* at either end of a window may be a fraction of one */
        Part parts_[kParts + 2];
        unsigned count_ = 0;
    };

    /* Gives back units that were admitted at a tick. */
    void add(uint64_t tick, uint32_t given) const
    {
        uint64_t number = tick / grain_;
        uint64_t refused_ms = 0;

        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = table(number / length_)
                            .obtain(RingStep(store_.now.behind(), length_),
                                    store_.may_evict, kState, &refused_ms);

            if (copy.kind == Copy::none) {
                return;
            }

            /*
             * While there is nothing in it, others may take the slot: what was
             * read is to be replaced only if it was ours after that.
             */
            Ring ring(copy, length_);
            Event seen = ring.load(number);
            Event next = ring.is_own(seen)
                             ? seen.with_total(std::min(seen.total() + given,
                                                        Event::kTotalMask))
                             : ring.make(0, number * grain_, given);

            if (copy.is_same() && ring.replace(number, seen, next)) {
                return;
            }
        }
    }

private:
    /* Totals do not wrap if a limit is used, and as much was given back. */
    static constexpr uint64_t kMax = Event::kTotalMask / 2;

    static_assert(kLimitMax + kMax <= Event::kTotalMask,
                  "what is used and what was given back");

    /* Slots are there or not: their states say no more. */
    static constexpr uint64_t kState = 1;

    Table<RingSlots> table(uint64_t slot) const
    {
        return store_.table_of(mixed(hash_, slot));
    }

    /* Calls visit(begin, units) for all parts that are not over, in order. */
    template <class Visit>
    void visit(const Visit &visit_part) const
    {
        const Clock &now = store_.now;
        uint64_t last = now.tick / grain_;
        uint64_t first = (now.tick - std::min(now.tick, now.span)) / grain_;

        for (uint64_t slot = first / length_; slot <= last / length_; slot++) {
            Copy copy = table(slot).look();

            if (copy.kind == Copy::none) {
                continue;
            }

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

#endif
