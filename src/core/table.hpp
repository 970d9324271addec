/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/atomics.hpp"
#include "core/candidates.hpp"
#include "core/claim.hpp"
#include "core/slot.hpp"
#include "core/victim.hpp"

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
 * What the table asks about states is the step's to answer, the algorithm at
 * one moment before one request:
 *
 *     uint64_t used(copy) const         how much it constrains; 0: as none
 *     uint64_t expires_ms(copy) const   until it is as none
 *     bool clear(&copy) const           forget what is as none; false: look
 *                                       again
 *     bool admit(state, &next) const    one decision, pure: update() only
 *     bool admit_ready(state, &next, &is_admitted) const
 *                                       the same of most states; false: admit()
 *                                       has to: update_ready() only
 *     void prepare(copy) const          a copy before its first state: obtain()
 *                                       only
 *     uint64_t ahead(copy) const        by how many epochs it lies ahead: update()
 *                                       and keep()
 *     Others others() const             to see slots of other windows (others.hpp)
 */
template <class Slots>
class Table : private Candidates<Slots> {
public:
    Table(const Slots &slots, const Pairs &pairs, SlotCounts *counts, uint64_t hash,
          const Epoch &epoch)
        : Candidates<Slots>(slots, pairs, hash, epoch), counts_(counts) {}

    using Candidates<Slots>::find_ready;
    using Candidates<Slots>::find_ready_anywhere;
    using Candidates<Slots>::look;
    using Candidates<Slots>::look_state;
    using Candidates<Slots>::is_live;

    /* `state` is the key's, or how many ms it takes until the first slot where
     * a refused key may be expires. */
    struct Result {
        Outcome outcome;
        uint64_t state;
    };

    /*
     * Lets the step decide on the state of the key's copy, and records what it
     * admits, if the copy, which find_ready() found, only needs another state,
     * as most do.  Else, or if another request was faster, returns false:
     * update() does it.
     */
    template <class Step>
    [[gnu::always_inline]] bool update_ready(Copy copy, const Step &step, Result *result) {
        if (copy.kind != Copy::confirmed) { return false; }

        uint64_t state = copy.bare_state();
        uint64_t next = state;

        bool is_admitted;

        if (!step.admit_ready(state, &next, &is_admitted)) { return false; }

        if (!is_admitted) {
            *result = {Outcome::kRejected, state};
            return true;
        }

        if (next != state && !copy.store(next)) { return false; }

        *result = {Outcome::kAdmitted, next};
        return true;
    }

    /*
     * Decides and records, whatever that takes.  A full table gives up the
     * state that constrains least or, with `may_evict` false, refuses the key.
     */
    template <class Step>
    Result update(const Step &step, bool may_evict) {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Victim victim(key_.salt());
            Copy copy = survey(step, &victim);
            uint64_t state = live_state(copy);
            uint64_t next = state;

            if (!step.admit(state, &next)) { return {Outcome::kRejected, state}; }

            if (next == state) { return decide_only(step); }

            Taken taken = take(step, may_evict, victim, &copy);

            if (taken == kRefused) { return {Outcome::kRefused, first_to_expire(step)}; }

            if (taken == kTaken && copy.store(next)) {
                if (tag::is_ahead(copy.tag, tag_)) { keep(step); }

                return {Outcome::kAdmitted, next};
            }
        }

        return give_up();
    }

    /* Returns the key's copy, which gets this state if it is new.  If there is
     * none, tells for how many ms there will be no slot for it.  It is out of
     * line, as callers have found most keys before. */
    template <class Step>
    [[gnu::noinline]] Copy obtain(const Step &step, bool may_evict, uint64_t state,
                                  uint64_t *refused_ms) {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Victim victim(key_.salt());
            Copy copy = survey(step, &victim);
            bool is_confirmed = copy.kind == Copy::confirmed;

            Taken taken = take(step, may_evict, victim, &copy);

            if (taken == kRefused) {
                *refused_ms = first_to_expire(step);
                return {};
            }

            if (taken == kLost) { continue; }

            if (is_confirmed) { return copy; }

            step.prepare(copy);

            if (copy.store(state)) {
                copy.kind = Copy::confirmed;
                return copy;
            }
        }

        *refused_ms = give_up().state;
        return {};
    }

    /* Replaces the key's state by change(state), if it has one. */
    template <class Change>
    void amend(const Change &change) {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = look();
            uint64_t state = copy.bare_state();

            if (state == 0 || copy.store(change(state))) { return; }
        }
    }

    /*
     * Makes the epoch of the key's copy that of its state, which lies ahead if the
     * key owes, so that the state is kept until then; and the present one again
     * when it owes no more, as then its time stamp is not to be compared for
     * longer than others'.  The state was stored before.  Of several who do so, the
     * last one has seen both as they are.
     */
    template <class Step>
    void keep(const Step &step) const {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = look();
            uint64_t ahead = copy.kind == Copy::none ? 0 : step.ahead(copy);

            if (copy.kind == Copy::none || (ahead == 0 && !tag::is_ahead(copy.tag, tag_))) {
                return;
            }

            uint64_t wanted = tag::later(tag_like(copy.tag), ahead);

            if (copy.tag == wanted) { return; }

            copy.retag(wanted);
        }
    }

private:
    using Candidates<Slots>::first_to_expire;
    using Candidates<Slots>::inspect;
    using Candidates<Slots>::key_;
    using Candidates<Slots>::live_state;
    using Candidates<Slots>::search;
    using Candidates<Slots>::tag_;
    using Candidates<Slots>::tag_like;
    using Candidates<Slots>::is_recent_there;
    using Candidates<Slots>::used;
    using Candidates<Slots>::used_there;

    template <class Step>
    Result decide_only(const Step &step) const {
        uint64_t state = look_state();
        uint64_t next;

        return {step.admit(state, &next) ? Outcome::kAdmitted : Outcome::kRejected, state};
    }

    /* Refuses the key after the last attempt; it may try again at once. */
    Result give_up() {
        add(&counts_->refused, 1);

        return {Outcome::kRefused, 1};
    }

    enum Taken { kTaken, kLost, kRefused };

    /* Makes of what survey() found a copy that may be given a state.  kLost:
     * another request was faster, and the caller looks again. */
    template <class Step>
    Taken take(const Step &step, bool may_evict, const Victim &victim, Copy *copy) const {
        if (copy->kind == Copy::changed) { return kLost; }

        if (copy->kind == Copy::none) {
            Taken taken = take_place(may_evict, victim, copy);

            if (taken != kTaken) { return taken; }
        }

        return make_ready(step, copy) ? kTaken : kLost;
    }

    /* Claims a slot for a new key. */
    Taken take_place(bool may_evict, const Victim &victim, Copy *copy) const {
        if (victim.is_live() && !may_evict) {
            add(&counts_->refused, 1);
            return kRefused;
        }

        *copy = victim.copy();

        if (!victim.is_found() || !claim(copy)) { return kLost; }

        if (victim.is_live()) {
            add(&counts_->evicted, 1);
        } else if (victim.copy().tag == 0) {
            add(&counts_->used, 1);
        }

        return kTaken;
    }

    /* Makes a copy ready to be given a state: brings its epoch up to date and
     * sees that it is the only one.  A state that is over goes first, so that
     * its time stamp is never compared again.  False: the copy has changed or
     * is one of two; the caller looks again. */
    template <class Step>
    bool make_ready(const Step &step, Copy *copy) const {
        if (tag::age(copy->tag, tag_) != 0) {
            /* its key may have returned after the tag was read, which then tells
             * nothing of the state */
            if (copy->slot->tag.load() != copy->tag) { return false; }

            if (copy->kind == Copy::confirmed && used(step, *copy) == 0 && !step.clear(copy)) {
                return false;
            }

            if (!copy->retag(tag_like(copy->tag))) { return false; }
        }

        return copy->kind == Copy::confirmed || is_alone(*copy);
    }

    /* True if this tentative copy is the only one.  If not, one copy too many
     * is withdrawn, and the caller looks again. */
    bool is_alone(Copy copy) const {
        bool alone = true;

        search([&](Slot &slot, bool) {
            Copy other = &slot == copy.slot ? Copy{} : inspect(slot);

            if (other.kind == Copy::none) { return false; }

            /* of two tentative copies everybody must withdraw the same one */

            bool is_later = other.kind == Copy::tentative && other.slot > copy.slot;

            (is_later ? other : copy).store(Copy::kDead);
            alone = false;
            return true;
        });

        return alone;
    }

    /* Claims a slot. False: another request was faster. */
    bool claim(Copy *copy) const {
        /* Whoever is about to give the victim a state must fail: it was chosen
         * for the one it has.  Nor may a tentative state fall two generations
         * behind. */
        if (copy->tag != 0 && copy->kind != Copy::none && !copy->store(Copy::kDead)) {
            return false;
        }

        if (!copy->retag(tag_like(copy->tag + 1))) { return false; }

        copy->kind = Copy::tentative;

        return true;
    }

    template <class Step>
    uint64_t rank(const Step &step, const Copy &copy, bool is_last) const {
        if (copy.tag == 0) { return is_last ? Victim::kUnusedLast : Victim::kUnused; }

        if (copy.kind == Copy::tentative) {
            return is_recent_there(step, copy.tag) ? Victim::kTentative : Victim::kOver;
        }

        uint64_t taken = used_there(step, copy);

        return taken == 0 ? Victim::kOver : Victim::kLive + taken;
    }

    /* Returns the key's first copy.  If it has none, `victim` is the slot to
     * claim; if there is no such slot, the caller looks again. */
    template <class Step>
    Copy survey(const Step &step, Victim *victim) const {
        Copy own = {};
        uint64_t place = 0;

        search([&](Slot &slot, bool is_last) {
            Copy copy = Copy::read(slot);

            if (copy.kind != Copy::none && tag::same_key(copy.tag, tag_)) {
                own = copy;
                return true;
            }

            if (copy.kind != Copy::changed && !victim->is_over()) {
                uint64_t taken = rank(step, copy, is_last);

                /* its key may have returned after the tag was read, which then tells
                 * nothing of the state */
                if (taken != Victim::kOver || copy.slot->tag.load() == copy.tag) {
                    victim->consider(copy, taken, place);
                }
            }

            place++;
            return false;
        });

        return own;
    }

    SlotCounts *counts_;
};

} // namespace limit_sliding
