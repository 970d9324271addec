/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cassert>
#include <cstdint>

#include "core/base/atomics.hpp"
#include "core/policy/claim.hpp"
#include "core/table/candidates.hpp"
#include "core/table/slot.hpp"
#include "core/table/slot_choice.hpp"

namespace limit_sliding {

/*
 * The table of a zone as one request sees it: the candidate slots of a key, shared with processes
 * that may die between any two instructions.  There is no lock and nothing to repair.
 * docs/architecture.md explains the protocol, and t/model/table.pml checks it.
 *
 * A key must never have two copies that count.  Two processes may claim two slots for the same key
 * at once.  So a claimed copy is tentative at first.  It gets its first state only from a process
 * that saw the claim, and afterwards found no copy in any other slot.  At least the later of two
 * claims sees the other one.
 *
 * The table knows no algorithm.  It calls a Step, which is an algorithm at the moment of one
 * request:
 *
 *     uint64_t used(copy) const         rank of a state; 0: expired
 *     uint64_t expires_ms(copy) const   ms until the state expires
 *     bool clear(&copy) const           deletes an expired state; false: search
 *                                       again
 *     bool admit(state, &next) const    one decision, pure; for update()
 *     bool admit_ready(state, &next, &is_admitted) const
 *                                       decides most states, false: admit() has
 *                                       to; for update_ready()
 *     void prepare(copy) const          prepares a copy for its first state; for
 *                                       obtain()
 *     OtherWindowSlots other_window_slots() const
 *                                       view of slots of other windows
 */
template <class Slots>
class Table : private Candidates<Slots> {
public:
    Table(const Slots &slots, const Pairs &pairs, SlotCounts *counts, uint64_t hash,
          const TagEpoch &epoch)
        : Candidates<Slots>(slots, pairs, hash, epoch), counts_(counts) {}

    using Candidates<Slots>::find_ready;
    using Candidates<Slots>::find_ready_anywhere;
    using Candidates<Slots>::look;
    using Candidates<Slots>::look_state;
    using Candidates<Slots>::is_live;
    using Candidates<Slots>::withdraw_old;

    /* `state` is that of the key; for kRefused, the ms until the first candidate slot expires. */
    struct Result {
        Outcome outcome;
        uint64_t state;
    };

    /* Decides on a copy from find_ready() and stores the next state, which is enough for most
     * requests.  Returns false if update() has to decide, or if another request was faster. */
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

        assert(next < Copy::kDead);
        if (next != state && !copy.store(next)) { return false; }

        *result = {Outcome::kAdmitted, next};
        return true;
    }

    /* Decides and stores in all cases.  A full table evicts the state of the lowest rank or,
     * without `may_evict`, refuses the key. */
    template <class Step>
    Result update(const Step &step, bool may_evict) {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            SlotChoice choice(key_.salt());
            Copy copy = survey(step, &choice);
            uint64_t state = live_state(copy);
            uint64_t next = state;

            if (!step.admit(state, &next)) { return {Outcome::kRejected, state}; }

            assert(next < Copy::kDead);
            if (next == state) { return decide_only(step); }

            Taken taken = take(step, may_evict, choice, &copy);

            if (taken == kRefused) { return {Outcome::kRefused, first_to_expire(step)}; }

            if (taken == kTaken && copy.store(next)) { return {Outcome::kAdmitted, next}; }
        }

        return give_up();
    }

    /* Returns the key's copy; a new copy gets this state.  If there is no slot, sets the ms until
     * one expires.  Out of line, because callers search first and find most keys. */
    template <class Step>
    [[gnu::noinline]] Copy obtain(const Step &step, bool may_evict, uint64_t state,
                                  uint64_t *refused_ms) {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            SlotChoice choice(key_.salt());
            Copy copy = survey(step, &choice);
            bool is_confirmed = copy.kind == Copy::confirmed;

            Taken taken = take(step, may_evict, choice, &copy);

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

    /* Replaces the key's state by change(state), if the key has one. */
    template <class Change>
    void amend(const Change &change) {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            Copy copy = look();
            uint64_t state = copy.bare_state();
            if (state == 0 || copy.store(change(state))) { return; }
        }
    }

private:
    using Candidates<Slots>::first_to_expire;
    using Candidates<Slots>::inspect;
    using Candidates<Slots>::key_;
    using Candidates<Slots>::live_state;
    using Candidates<Slots>::search;
    using Candidates<Slots>::slots_;
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

    /* Refuses the key after the last attempt.  The client may retry at once. */
    Result give_up() {
        add(&counts_->refused, 1);
        return {Outcome::kRefused, 1};
    }

    enum Taken { kTaken, kLost, kRefused };

    /* Turns the result of survey() into a copy that may get a state. kLost: another request was
     * faster; the caller tries again. */
    template <class Step>
    Taken take(const Step &step, bool may_evict, const SlotChoice &choice, Copy *copy) const {
        if (copy->kind == Copy::changed) { return kLost; }
        if (copy->kind == Copy::none) {
            Taken taken = take_place(may_evict, choice, copy);
            if (taken != kTaken) { return taken; }
        }
        return make_ready(step, copy) ? kTaken : kLost;
    }

    /* Claims a slot for a new key. */
    Taken take_place(bool may_evict, const SlotChoice &choice, Copy *copy) const {
        if (choice.is_live() && !may_evict) {
            add(&counts_->refused, 1);
            return kRefused;
        }

        *copy = choice.copy();

        if (!choice.is_found() || !claim(copy)) { return kLost; }

        if (choice.is_live()) {
            add(&counts_->evicted, 1);
        } else if (choice.copy().tag == 0) {
            add(&counts_->used, 1);
        }

        return kTaken;
    }

    /* Prepares a copy for a state: updates its epoch and checks that it is the only copy.  An
     * expired state is cleared first, because its time stamp must not be compared again.  Returns
     * false if the copy has changed or is one of two; the caller tries again. */
    template <class Step>
    bool make_ready(const Step &step, Copy *copy) const {
        if (tag::age(copy->tag, tag_) != 0) {
            /* if the key has returned since the tag was read, the age of the tag is wrong */
            if (copy->slot->tag.load() != copy->tag) { return false; }

            if (copy->kind == Copy::confirmed && used(step, *copy) == 0 && !step.clear(copy)) {
                return false;
            }

            if (!copy->retag(tag_like(copy->tag))) { return false; }
        }

        return copy->kind == Copy::confirmed || is_alone(*copy);
    }

    /* Returns true if this tentative copy is the only one.  Else withdraws one of the two, and the
     * caller tries again. */
    bool is_alone(Copy copy) const {
        bool alone = true;

        search([&](Slot &slot, bool) {
            Copy other = &slot == copy.slot ? Copy{} : inspect(slot);

            if (other.kind == Copy::none) { return false; }

            /* all processes must withdraw the same one of two tentative copies */

            bool is_later = other.kind == Copy::tentative && other.slot > copy.slot;

            (is_later ? other : copy).store(Copy::kDead);
            alone = false;
            return true;
        });

        return alone;
    }

    /* Claims a slot.  Returns false if another request was faster. */
    bool claim(Copy *copy) const {
        /* Marks the state as dead first: the slot was chosen for this state, so an update in
         * between must fail.  Also a tentative copy must not fall two generations behind. */
        if (copy->tag != 0 && copy->kind != Copy::none && !copy->store(Copy::kDead)) {
            return false;
        }

        if (copy->tag == 0) { slots_.mark(*copy->slot); }

        if (!copy->retag(tag_like(copy->tag + 1))) { return false; }

        copy->kind = Copy::tentative;

        return true;
    }

    template <class Step>
    uint64_t rank(const Step &step, const Copy &copy, bool is_last) const {
        if (copy.tag == 0) { return is_last ? SlotChoice::kUnusedLast : SlotChoice::kUnused; }
        if (copy.kind == Copy::none) { return SlotChoice::kUnused; }
        if (copy.kind == Copy::tentative) {
            return is_recent_there(step, copy.tag) ? SlotChoice::kTentative : SlotChoice::kOver;
        }
        uint64_t taken = used_there(step, copy);
        return taken == 0 ? SlotChoice::kOver : SlotChoice::kLive + taken;
    }

    /* Returns the first copy of the key.  If there is none, `choice` gets the slot to claim, or no
     * slot, and then the caller tries again. */
    template <class Step>
    Copy survey(const Step &step, SlotChoice *choice) const {
        Copy own = {};
        uint64_t place = 0;

        search([&](Slot &slot, bool is_last) {
            Copy copy = Copy::read(slot);

            if (copy.kind != Copy::none && tag::same_key(copy.tag, tag_)) {
                own = copy;
                return true;
            }

            if (copy.kind != Copy::changed && (copy.tag == 0 || !choice->is_over())) {
                uint64_t taken = rank(step, copy, is_last);

                /* if the key has returned since the tag was read, the age of the tag is wrong */
                if (taken > SlotChoice::kOver || copy.slot->tag.load() == copy.tag) {
                    choice->consider(copy, taken, place);
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
