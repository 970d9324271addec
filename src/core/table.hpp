/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_CORE_TABLE_HPP
#define LIMIT_SLIDING_CORE_TABLE_HPP

#include <cstdint>

#include "key.hpp"
#include "slot.hpp"

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
    Table(Line *lines, uint64_t pairs, uint64_t hash, uint64_t epoch)
        : lines_(lines), key_(hash, pairs), epoch_(epoch)
    {
    }

    enum class Outcome { admitted, rejected, refused };

    struct Result {
        Outcome outcome;
        uint64_t state;
        bool evicted; /* a live state was given up for the key */
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
        Result result = {Outcome::admitted, 0, false};

        for (;;) {
            Copy copy = find();

            result.state = copy.live_state(epoch_);

            uint64_t next = result.state;

            if (!step.admit(result.state, &next)) {
                result.outcome = Outcome::rejected;
                return result;
            }

            if (next == result.state) {
                return result;
            }

            if (copy.kind == Copy::none
                && !claim(step, may_evict, &copy, &result)) {
                if (result.outcome == Outcome::refused) {
                    return result;
                }
                continue;
            }

            if (prepare(step, &copy) && copy.store(next)) {
                result.state = next;
                return result;
            }
        }
    }

    /* The key's state; 0 if it has none. */
    uint64_t look() const { return find().live_state(epoch_); }

    /* Replaces the key's state by change(state), if it has one. */
    template <class Change>
    void amend(const Change &change)
    {
        for (;;) {
            Copy copy = find();
            uint64_t state = copy.live_state(epoch_);

            if (state == 0 || copy.store(change(state))) {
                return;
            }
        }
    }

    /* Does the slot, of whatever key, hold a state that counts? */
    template <class Step>
    bool is_live(Slot &slot, const Step &step) const
    {
        return step.used(Copy::read(slot).live_state(epoch_)) != 0;
    }

private:
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

    uint64_t make_tag(uint64_t generation) const
    {
        return tag::make(key_.fingerprint(), epoch_, generation);
    }

    bool is_ours(uint64_t tag) const
    {
        return tag >> tag::kFingerprintShift == key_.fingerprint();
    }

    /* The key's copy in this slot, if there is one. */
    Copy inspect(Slot &slot) const
    {
        while (is_ours(slot.tag.load())) {
            Copy copy = Copy::read(slot);

            if (copy.kind != Copy::changed) {
                return is_ours(copy.tag) ? copy : Copy{};
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
     * Makes a copy ready to be given a state.  False: it has changed, or is
     * one of two; the caller looks again.
     */
    template <class Step>
    bool prepare(const Step &step, Copy *copy) const
    {
        /*
         * The epoch is brought up to date before the state is.  A state that
         * is over gets a new life, so that its time stamp is never compared
         * again.
         */
        if (tag::age(copy->tag, epoch_) != 0) {
            bool over = copy->kind == Copy::confirmed
                        && step.used(copy->live_state(epoch_)) == 0;

            if (!copy->retag(make_tag(copy->tag + over))) {
                return false;
            }
        }

        return copy->kind == Copy::confirmed || is_alone(*copy);
    }

    /*
     * Is this tentative copy the only one?  If not, one copy too many is
     * withdrawn, and the caller looks again.
     */
    bool is_alone(const Copy &copy) const
    {
        bool alone = true;

        search([&](Slot &slot, bool) {
            Copy other = &slot == copy.slot ? Copy{} : inspect(slot);

            if (other.kind == Copy::none) {
                return false;
            }

            /* of two tentative copies everybody must withdraw the same one */

            bool is_later = other.kind == Copy::tentative
                            && other.slot > copy.slot;

            (is_later ? other : copy).store(Copy::kDead);
            alone = false;
            return true;
        });

        return alone;
    }

    /*
     * Claims a slot for the key, which has none.  False: refused, or another
     * was faster and the caller looks again.
     */
    template <class Step>
    bool claim(const Step &step, bool may_evict, Copy *copy, Result *result)
    {
        uint64_t rank = choose(step, copy);

        if (copy->slot == nullptr) {
            return false;
        }

        if (rank >= kTentative && !may_evict) {
            result->outcome = Outcome::refused;
            result->state = first_to_expire(step);
            return false;
        }

        /*
         * A tentative state is one generation behind and must not fall two
         * behind.  Its claimant, if alive, finds the copy dead and starts over.
         */
        if (copy->kind == Copy::tentative) {
            if (!copy->store(Copy::kDead)) {
                return false;
            }
            copy->state = copy->in_generation(Copy::kDead);
        }

        if (!copy->retag(make_tag(copy->tag + 1))) {
            return false;
        }

        result->evicted |= rank >= kLive;

        return true;
    }

    /* The order in which slots are claimed. */
    static constexpr uint64_t kOver = 0;
    static constexpr uint64_t kUnused = 1;
    static constexpr uint64_t kUnusedLast = 2;
    static constexpr uint64_t kTentative = 3;
    static constexpr uint64_t kLive = 4; /* and above by what is used */

    template <class Step>
    uint64_t rank(const Step &step, const Copy &copy, bool is_last) const
    {
        if (copy.tag == 0) {
            return is_last ? kUnusedLast : kUnused;
        }

        if (copy.kind == Copy::tentative) {
            return kTentative;
        }

        uint64_t used = step.used(copy.live_state(epoch_));

        return used == 0 ? kOver : kLive + used;
    }

    /*
     * Finds the slot to claim: the first of the lowest rank, but among live
     * states one at random, so that in a flood of new keys each lasts about as
     * long as the others.  Returns its rank.
     */
    template <class Step>
    uint64_t choose(const Step &step, Copy *victim) const
    {
        constexpr uint64_t kOrders = 32;
        static_assert(kOrders >= Key::kLines * Line::kSlots, "one a slot");

        uint64_t best = UINT64_MAX;
        uint64_t n = 0;

        *victim = {};

        search([&](Slot &slot, bool is_last) {
            Copy copy = Copy::read(slot);

            if (copy.kind != Copy::changed) {
                uint64_t r = rank(step, copy, is_last);
                uint64_t order = (r >= kLive ? key_.salt() + n : n) % kOrders;

                if (r * kOrders + order < best) {
                    best = r * kOrders + order;
                    *victim = copy;
                }
            }

            n++;
            return false;
        });

        return best / kOrders;
    }

    template <class Step>
    uint64_t first_to_expire(const Step &step) const
    {
        uint64_t first = 0;
        uint64_t first_ms = UINT64_MAX;

        search([&](Slot &slot, bool) {
            uint64_t state = Copy::read(slot).live_state(epoch_);
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
    Key key_;
    uint64_t epoch_;
};

} // namespace limit_sliding

#endif
