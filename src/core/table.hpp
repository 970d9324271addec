/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_CORE_TABLE_HPP
#define LIMIT_SLIDING_CORE_TABLE_HPP

#include <atomic>
#include <cstdint>

#include "key.hpp"
#include "limiter.h"
#include "slot.hpp"
#include "victim.hpp"

namespace limit_sliding {

/*
 * The table of a zone as one request sees it: its key's places among all the
 * slots, shared with processes that may die between any two instructions.
 * There is no lock and nothing to repair.  docs/architecture.md argues the
 * protocol, t/model/table.pml checks it.
 *
 * A key must never have two copies that count.  Who claims a slot may have
 * missed a claim for the same key elsewhere, so a tentative copy is given its
 * first state only by who has seen it there and then no copy in any other
 * place: of two claims at least the later one sees the other.
 *
 * A key takes an unused slot in the first of its lines that has fewer than
 * three in use, else in the first that has fewer than four.  Slots of a line
 * fill in order and are never unused again, so a search ends at the first
 * line that has fewer than three in use.
 *
 * An algorithm at one moment before one request is a step:
 *
 *     bool admit(state, &next) const        one decision, pure
 *     uint64_t used(state) const            how much it constrains; 0: as none
 *     uint64_t expires_ms(state) const      until it is as none
 */
class Table {
public:
    /* What happened to keys for want of slots. */
    struct Stats {
        std::atomic<uint64_t> evicted;
        std::atomic<uint64_t> refused;
    };

    Table(Line *lines, uint64_t pairs, Stats *stats, uint64_t hash,
          uint64_t epoch)
        : lines_(lines), stats_(stats), key_(hash, pairs),
          tag_(tag::make(key_.fingerprint(), epoch))
    {
    }

    struct Result {
        limit_sliding_outcome_t outcome;
        uint64_t state;
    };

    /*
     * Lets the step decide on the key's state, and records what it admits.  A
     * full table gives up the state that constrains least or, with `may_evict`
     * false, refuses the key and returns the state that expires first in its
     * places.
     */
    template <class Step>
    Result update(const Step &step, bool may_evict)
    {
        /* Most keys are in their first line and only need another state. */

        Copy copy = find_ready(lines_[key_.line(0)]);

        if (copy.kind == Copy::confirmed) {
            uint64_t state = copy.bare_state();
            uint64_t next = state;

            if (!step.admit(state, &next)) {
                return {LIMIT_SLIDING_REJECTED, state};
            }

            if (next == state || copy.store(next)) {
                return {LIMIT_SLIDING_ADMITTED, next};
            }
        }

        return update_anywhere(*this, step, may_evict);
    }

    /* The key's state; 0 if it has none. */
    uint64_t look() const { return live_state(find()); }

    /* Replaces the key's state by change(state), if it has one. */
    template <class Change>
    void amend(const Change &change)
    {
        for (;;) {
            Copy copy = find();
            uint64_t state = live_state(copy);

            if (state == 0 || copy.store(change(state))) {
                return;
            }
        }
    }

    /* Does the slot, of whatever key, hold a state that counts? */
    template <class Step>
    bool is_live(Slot &slot, const Step &step) const
    {
        return step.used(live_state(Copy::read(slot))) != 0;
    }

private:
    /*
     * update(), whatever it takes.  Has its arguments by value and out of
     * line, so that the common case keeps its own in registers.
     */
    template <class Step>
    [[gnu::noinline]] static Result update_anywhere(Table table, Step step,
                                                    bool may_evict)
    {
        for (;;) {
            Copy copy = table.find();
            uint64_t state = table.live_state(copy);
            uint64_t next = state;

            if (!step.admit(state, &next)) {
                return {LIMIT_SLIDING_REJECTED, state};
            }

            if (next == state) {
                return {LIMIT_SLIDING_ADMITTED, state};
            }

            if (copy.kind == Copy::none) {
                Victim victim = table.choose(step);

                if (victim.is_live() && !may_evict) {
                    table.stats_->refused.fetch_add(1);
                    return {LIMIT_SLIDING_REFUSED, table.first_to_expire(step)};
                }

                copy = victim.copy();

                if (!victim.is_found() || !table.claim(&copy)) {
                    continue;
                }

                if (victim.is_live()) {
                    table.stats_->evicted.fetch_add(1);
                }
            }

            if (table.make_ready(step, &copy) && copy.store(next)) {
                return {LIMIT_SLIDING_ADMITTED, next};
            }
        }
    }

    /*
     * Calls visit(slot, is_last_of_line) for every slot where the key may be,
     * until it returns true.
     */
    template <class Visit>
    void search(const Visit &visit) const
    {
        for (unsigned i = 0; i < Key::kLines; i++) {
            Line &line = lines_[key_.line(i)];

            for (unsigned j = 0; j < Line::kSlots; j++) {
                if (visit(line.slot[j], j == Line::kSlots - 1)) {
                    return;
                }
            }

            if (line.slot[Line::kSlots - 2].tag.load() == 0) {
                return;
            }
        }
    }

    /* The key's tag as of now in another tag's generation. */
    uint64_t tag_like(uint64_t other) const
    {
        return tag_ | tag::generation(other);
    }

    /* The state; 0 if it is none that counts any more. */
    uint64_t live_state(const Copy &copy) const
    {
        return copy.kind == Copy::confirmed && tag::age(copy.tag, tag_) < 2
                   ? copy.bare_state()
                   : 0;
    }

    /* The key's copy in this slot, if there is one. */
    Copy inspect(Slot &slot) const
    {
        for (;;) {
            uint64_t tag = slot.tag.load();

            if (!tag::same_key(tag, tag_)) {
                return {};
            }

            Copy copy = Copy::read(slot, tag);

            if (copy.kind != Copy::changed) {
                return copy;
            }
        }
    }

    /* The key's copy in a line if it needs no more than another state. */
    Copy find_ready(Line &line) const
    {
        for (Slot &slot : line.slot) {
            uint64_t tag = slot.tag.load();

            if (tag::same_time(tag, tag_)) {
                return Copy::read(slot, tag);
            }
        }

        return {};
    }

    /* The key's first copy. */
    Copy find() const
    {
        Copy copy = {};

        search([&](Slot &slot, bool) {
            copy = inspect(slot);
            return copy.kind != Copy::none;
        });

        return copy;
    }

    /*
     * Makes a copy ready to be given a state: brings its epoch up to date and
     * sees that it is the only one.  A state that is over goes first, so that
     * its time stamp is never compared again.  False: the copy has changed or
     * is one of two; the caller looks again.
     */
    template <class Step>
    bool make_ready(const Step &step, Copy *copy) const
    {
        if (tag::age(copy->tag, tag_) != 0) {
            if (copy->kind == Copy::confirmed
                && step.used(live_state(*copy)) == 0 && !copy->store(0)) {
                return false;
            }

            if (!copy->retag(tag_like(copy->tag))) {
                return false;
            }
        }

        return copy->kind == Copy::confirmed || is_alone(*copy);
    }

    /*
     * Is this tentative copy the only one?  If not, one copy too many is
     * withdrawn, and the caller looks again.
     */
    bool is_alone(Copy copy) const
    {
        bool alone = true;

        search([&](Slot &slot, bool) {
            Copy other = &slot == copy.slot ? Copy{} : inspect(slot);

            if (other.kind == Copy::none) {
                return false;
            }

            /* of two tentative copies everybody must withdraw the same one */

            bool is_later
                = other.kind == Copy::tentative && other.slot > copy.slot;

            (is_later ? other : copy).store(Copy::kDead);
            alone = false;
            return true;
        });

        return alone;
    }

    /* Claims a slot.  False: another was faster. */
    bool claim(Copy *copy) const
    {
        /*
         * Whoever is about to give the victim a state must fail: it was chosen
         * for the one it has.  Nor may a tentative state fall two generations
         * behind.
         */
        if (copy->tag != 0 && copy->kind != Copy::none
            && !copy->store(Copy::kDead)) {
            return false;
        }

        if (!copy->retag(tag_like(copy->tag + 1))) {
            return false;
        }

        copy->kind = Copy::tentative;

        return true;
    }

    template <class Step>
    uint64_t rank(const Step &step, const Copy &copy, bool is_last) const
    {
        if (copy.tag == 0) {
            return is_last ? Victim::kUnusedLast : Victim::kUnused;
        }

        if (copy.kind == Copy::tentative) {
            return tag::age(copy.tag, tag_) < 2 ? Victim::kTentative
                                                : Victim::kOver;
        }

        uint64_t used = step.used(live_state(copy));

        return used == 0 ? Victim::kOver : Victim::kLive + used;
    }

    /* Finds the slot to claim.  If there is none the caller looks again. */
    template <class Step>
    Victim choose(const Step &step) const
    {
        Victim victim(key_.salt());
        uint64_t place = 0;

        search([&](Slot &slot, bool is_last) {
            Copy copy = Copy::read(slot);

            if (copy.kind != Copy::none && tag::same_key(copy.tag, tag_)) {
                /* it came since the caller looked */
                victim.forget();
                return true;
            }

            if (copy.kind != Copy::changed) {
                victim.consider(copy, rank(step, copy, is_last), place);
            }

            place++;
            return false;
        });

        return victim;
    }

    template <class Step>
    uint64_t first_to_expire(const Step &step) const
    {
        uint64_t first = 0;
        uint64_t first_ms = UINT64_MAX;

        search([&](Slot &slot, bool) {
            uint64_t state = live_state(Copy::read(slot));
            uint64_t ms = step.expires_ms(state);

            if (ms != 0 && ms < first_ms) {
                first = state;
                first_ms = ms;
            }

            return false;
        });

        return first;
    }

    Line *lines_;
    Stats *stats_;
    Key key_;
    uint64_t tag_; /* the key's as of now, in generation 0 */
};

} // namespace limit_sliding

#endif
