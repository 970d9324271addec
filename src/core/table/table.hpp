/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "core/base/atomics.hpp"
#include "core/policy/claim.hpp"
#include "core/policy/tag_epoch.hpp"
#include "core/table/key.hpp"
#include "core/table/slot.hpp"

namespace limit_sliding {

/* Chooses the slot to claim for a new key: the first one of the lowest rank.  Among live states
 * the choice is random, so that keys last equally long in a flood of new keys. */
class SlotChoice {
public:
    /* Ranks in ascending order.  An expired state may still count by a clock that lags more than
     * expected, so unused slots come first.  The last slot of a line comes after expired states,
     * because searches end sooner while it is unused.  Tentative copies come last, or two keys
     * could evict each other forever; but tentative copies of dead processes become kOver. */
    static constexpr uint64_t kUnused = 0; /* or a withdrawn copy */
    static constexpr uint64_t kOver = 1;
    static constexpr uint64_t kUnusedLast = 2; /* the last slot of a line */
    static constexpr uint64_t kLive = 3;       /* plus the rank of the state */
    static constexpr uint64_t kTentative = UINT64_MAX;

    /* `salt` differs between keys. */
    explicit SlotChoice(uint64_t salt)
        : copy_{}, rank_(UINT64_MAX), turn_(UINT64_MAX), salt_(salt) {}

    /* `place` is the number of the slot in the search. */
    void consider(const Copy &copy, uint64_t rank, uint64_t place) {
        /* multiples of the golden ratio modulo 1 are evenly spread, so each place may come first */
        uint64_t turn = rank >= kLive ? (salt_ + place) * 0x9e3779b97f4a7c15 : place;

        if (rank < rank_ || (rank == rank_ && turn < turn_)) {
            rank_ = rank;
            turn_ = turn;
            copy_ = copy;
        }
    }

    bool is_found() const { return copy_.slot != nullptr; }

    /* Returns true if only an unused slot can be better. */
    bool is_over() const { return is_found() && rank_ <= kOver; }

    /* Returns true if the choice would evict a live state, or a copy that may still get a state. */
    bool is_live() const { return is_found() && rank_ >= kLive; }

    const Copy &copy() const { return copy_; }

private:
    Copy copy_;
    uint64_t rank_;
    uint64_t turn_;
    uint64_t salt_;
};

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
 * A key takes an unused slot in the first of its lines with fewer than three used slots, else in
 * the first with fewer than four.  If all lines are full, the same applies to its spare lines.
 * The slots of a line fill in order and are never unused again.  So a search ends at the first
 * line with fewer than three used slots, and reaches spare lines only if all other lines are full.
 *
 * The table knows no algorithm.  It calls a Step, which is an algorithm at the moment of one
 * request:
 *
 *     uint64_t used(copy) const         rank of a state; 0: expired
 *     uint64_t expires_ms(copy) const   ms until the state expires
 *     bool clear(&copy) const           deletes an expired state; false: search
 *                                       again
 *     bool admit(state, &next) const    one decision, pure; for update()
 *     void prepare(copy) const          prepares a copy for its first state; for
 *                                       obtain()
 *     OtherWindowSlot other_window_slot(copy) const
 *                                       view of a slot with another window
 */
template <class Slots>
class Table {
public:
    Table(const Slots &slots, SlotCounts *counts, uint64_t hash, const TagEpoch &epoch)
        : slots_(slots), key_(hash, slots.zone->pairs), tag_(tag::make(key_.fingerprint(), epoch)),
          counts_(counts) {}

    /* Returns the key's copy if it is confirmed and less than two epochs old, else no copy. */
    Copy look() const {
        Copy copy = {};

        /* the confirmed copy may follow a tentative one */

        search([&](Slot &slot, bool) {
            copy = inspect(slot);
            return copy.kind == Copy::confirmed;
        });

        return is_recent(copy) ? copy : Copy{};
    }

    /* Returns the key's state; 0 if there is none. */
    uint64_t look_state() const { return look().bare_state(); }

    /* Returns the key's copy if it is in the first line and its tag is up to date. */
    [[gnu::always_inline]] Copy find_ready() const {
        uint64_t tag;
        Slot *slot = ready_slot(key_.line(0), &tag);
        return slot != nullptr ? Copy::read(*slot, tag) : Copy{};
    }

    /* Searches all lines like find_ready().  The loop is unrolled, so that the compiler inlines
     * the hash of each line. */
    [[gnu::always_inline]] Copy find_ready_anywhere() const {
        uint64_t tag;
        bool is_full = true;

#pragma GCC unroll 10
        for (unsigned i = 0; i < Key::kLines + Key::kSpareLines; i++) {
            if (i == Key::kLines && !(is_full && key_.has_spare_lines())) { break; }

            uint64_t line = key_.line(i);
            Slot *slot = ready_slot(line, &tag);

            if (slot != nullptr) { return Copy::read(*slot, tag); }

            if (!is_in_use(line, Line::kSlots - 2)) { break; }

            is_full = is_full && is_in_use(line, Line::kSlots - 1);
        }

        return {};
    }

    /* Returns true if the copy has a state of any key that has not expired. */
    template <class Step>
    bool is_live(const Copy &copy, const Step &step) const {
        return used_there(step, copy) != 0;
    }

    /* Withdraws the state of any key if the state is two epochs old.  Returns true if so.  The slot
     * must have been used. */
    template <class Step>
    bool withdraw_old(Slot &slot, const Step &step) const {
        Copy copy = Copy::read(slot);

        /* if the key has returned since the tag was read, the age of the tag is wrong */
        return copy.kind == Copy::confirmed && !is_recent_there(step, copy)
               && slot.tag.load() == copy.tag && copy.store(Copy::kDead);
    }

    /* `state` is that of the key; for kRefused, the ms until the first candidate slot expires. */
    struct Result {
        Outcome outcome;
        uint64_t state;
    };

    /* Decides on a copy from find_ready() by admit(state, &next, &is_admitted), and stores the next
     * state.  Returns false if the copy is not confirmed, if admit() returns false because it
     * cannot decide this state, or if another request was faster: then update() has to decide. */
    template <class Admit>
    [[gnu::always_inline]] bool update_ready(Copy copy, const Admit &admit, Result *result) {
        if (copy.kind != Copy::confirmed) { return false; }

        uint64_t state = copy.bare_state();
        uint64_t next = state;

        bool is_admitted;

        if (!admit(state, &next, &is_admitted)) { return false; }

        if (!is_admitted) {
            *result = {Outcome::kRejected, state};
            return true;
        }

        assert(next < Copy::kDead);
        if (next != state && !copy.store(next)) { return false; }

        *result = {Outcome::kAdmitted, next};
        return true;
    }

    /* Does the same in any line by step.admit(). */
    template <class Step>
    [[gnu::always_inline]] bool update_ready(const Step &step, Result *result) {
        auto admit = [&](uint64_t state, uint64_t *next, bool *is_admitted) {
            *is_admitted = step.admit(state, next);
            return true;
        };
        return update_ready(find_ready_anywhere(), admit, result);
    }

    /* Decides and stores in all cases.  A full table evicts the state of the lowest rank or,
     * without `may_evict`, refuses the key. */
    template <class Step>
    Result update(const Step &step, bool may_evict) {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            SlotChoice choice(key_.salt());
            Copy copy = survey(step, &choice);
            uint64_t state = is_recent(copy) ? copy.bare_state() : 0;
            uint64_t next = state;

            if (!step.admit(state, &next)) { return {Outcome::kRejected, state}; }

            assert(next < Copy::kDead);
            if (next == state) {
                /* the confirmed copy may follow a tentative one */
                state = look_state();
                return {step.admit(state, &next) ? Outcome::kAdmitted : Outcome::kRejected, state};
            }

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

    /* Withdraws copies of the key that have no state yet, such as that of a process that has died
     * while it claimed the slot.  A living process claims a slot again. */
    void withdraw_tentative() const {
        search([&](Slot &slot, bool) {
            Copy copy = inspect(slot);
            if (copy.kind == Copy::tentative) { copy.store(Copy::kDead); }
            return false;
        });
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
    /* Calls visit(slot, is_last_of_line) for each candidate slot until it returns true. */
    template <class Visit>
    void search(const Visit &visit) const {
        bool is_full = true;

        for (unsigned i = 0; i < Key::kLines + Key::kSpareLines; i++) {
            if (i == Key::kLines && !(is_full && key_.has_spare_lines())) { return; }

            uint64_t line = key_.line(i);

            for (unsigned j = 0; j < Line::kSlots; j++) {
                if (visit(slots_.slot(line, j), j == Line::kSlots - 1)) { return; }
            }

            if (!is_in_use(line, Line::kSlots - 2)) { return; }

            is_full = is_full && is_in_use(line, Line::kSlots - 1);
        }
    }

    /* Returns the slot of a line with the key's tag of the present epoch, else null. */
    [[gnu::always_inline]] Slot *ready_slot(uint64_t line, uint64_t *tag) const {
#pragma GCC unroll 4
        for (unsigned j = 0; j < Line::kSlots; j++) {
            Slot &slot = slots_.slot(line, j);
            *tag = slot.tag.load();
            if (tag::same_time(*tag, tag_)) { return &slot; }
        }
        return nullptr;
    }

    bool is_in_use(uint64_t line, unsigned number) const {
        return slots_.slot(line, number).tag.load() != 0;
    }

    /* Returns the key's tag of the present epoch in the generation of another tag. */
    uint64_t tag_like(uint64_t other) const { return tag_ | tag::generation(other); }

    /* Returns true if this copy of the key is confirmed and less than two epochs old. */
    bool is_recent(const Copy &copy) const {
        return copy.kind == Copy::confirmed && tag::age(copy.tag, tag_) < 2;
    }

    /* Returns the rank of this copy of the key; 0: no state. */
    template <class Step>
    uint64_t used(const Step &step, const Copy &copy) const {
        return is_recent(copy) ? step.used(copy) : 0;
    }

    /* Returns the rank of a copy of any key. */
    template <class Step>
    uint64_t used_there(const Step &step, const Copy &copy) const {
        return has_same_window(copy.tag) ? used(step, copy) : step.other_window_slot(copy).used;
    }

    /* Returns true if the tag of a copy of any key is less than two epochs old. */
    template <class Step>
    bool is_recent_there(const Step &step, const Copy &copy) const {
        return has_same_window(copy.tag) ? tag::age(copy.tag, tag_) < 2
                                         : step.other_window_slot(copy).is_recent;
    }

    /* Returns true if the slot's key and this key both have the zone's window. */
    bool has_same_window(uint64_t tag) const { return !tag::has_key_window(tag | tag_); }

    /* Returns the key's copy in this slot; none if the slot has another key. */
    Copy inspect(Slot &slot) const {
        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            uint64_t tag = slot.tag.load();
            if (!tag::same_key(tag, tag_)) { return {}; }
            Copy copy = Copy::read(slot, tag);
            if (copy.kind != Copy::changed) { return copy; }
        }
        return {};
    }

    template <class Step>
    uint64_t expires_ms(const Step &step, const Copy &copy) const {
        if (!has_same_window(copy.tag)) { return step.other_window_slot(copy).expires_ms; }
        return is_recent(copy) ? step.expires_ms(copy) : 0;
    }

    template <class Step>
    uint64_t first_to_expire(const Step &step) const {
        uint64_t first_ms = UINT64_MAX;
        search([&](Slot &slot, bool) {
            Copy copy = Copy::read(slot);
            uint64_t ms = expires_ms(step, copy);
            if (ms != 0) { first_ms = std::min(first_ms, ms); }
            return false;
        });
        return first_ms == UINT64_MAX ? 1 : first_ms;
    }

    /* Refuses the key after the last attempt.  The client may retry at once. */
    Result give_up() {
        add(&counts_->refused, 1);
        return {Outcome::kRefused, 1};
    }

    enum Taken { kTaken, kLost, kRefused };

    /* Turns the result of survey() into a copy that may get a state; a new key claims a slot.
     * kLost: another request was faster; the caller tries again. */
    template <class Step>
    Taken take(const Step &step, bool may_evict, const SlotChoice &choice, Copy *copy) const {
        if (copy->kind == Copy::changed) { return kLost; }

        if (copy->kind == Copy::none) {
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
        }

        return make_ready(step, copy) ? kTaken : kLost;
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

        if (copy->tag == 0) { slots_.zone->mark(*copy->slot); }

        if (!copy->retag(tag_like(copy->tag + 1))) { return false; }

        copy->kind = Copy::tentative;

        return true;
    }

    template <class Step>
    uint64_t rank(const Step &step, const Copy &copy, bool is_last) const {
        if (copy.tag == 0) { return is_last ? SlotChoice::kUnusedLast : SlotChoice::kUnused; }
        if (copy.kind == Copy::none) { return SlotChoice::kUnused; }
        if (copy.kind == Copy::tentative) {
            return is_recent_there(step, copy) ? SlotChoice::kTentative : SlotChoice::kOver;
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

    Slots slots_;
    Key key_;
    uint64_t tag_; /* the key's tag in the present epoch and generation 0 */
    SlotCounts *counts_;
};

} // namespace limit_sliding
