/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/policy/tag_epoch.hpp"
#include "core/table/key.hpp"
#include "core/table/slot.hpp"

namespace limit_sliding {

/*
 * The candidate slots of a key in the table.
 *
 * A key takes an unused slot in the first of its lines with fewer than three used slots, else in
 * the first with fewer than four.  If all lines are full, the same applies to its spare lines.
 * The slots of a line fill in order and are never unused again.  So a search ends at the first
 * line with fewer than three used slots, and reaches spare lines only if all other lines are full.
 *
 * Slots::slot(line, number) returns a slot in memory, and Slots::mark() remembers that a slot is
 * used.  Step is explained in table.hpp.
 */
template <class Slots>
class Candidates {
public:
    Candidates(const Slots &slots, const Pairs &pairs, uint64_t hash, const TagEpoch &epoch)
        : slots_(slots), key_(hash, pairs), tag_(tag::make(key_.fingerprint(), epoch)) {}

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

    /* Returns true if the slot has a state of any key that has not expired. */
    template <class Step>
    bool is_live(Slot &slot, const Step &step) const {
        return used_there(step, Copy::read(slot)) != 0;
    }

    /* Withdraws the state of any key if the state is two epochs old.  Returns true if so. */
    template <class Step>
    bool withdraw_old(Slot &slot, const Step &step) const {
        Copy copy = Copy::read(slot);

        /* if the key has returned since the tag was read, the age of the tag is wrong */
        return copy.kind == Copy::confirmed && copy.tag != 0 && !is_recent_there(step, copy.tag)
               && slot.tag.load() == copy.tag && copy.store(Copy::kDead);
    }

protected:
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

    uint64_t live_state(const Copy &copy) const { return is_recent(copy) ? copy.bare_state() : 0; }

    /* Returns the rank of this copy of the key; 0: no state. */
    template <class Step>
    uint64_t used(const Step &step, const Copy &copy) const {
        return is_recent(copy) ? step.used(copy) : 0;
    }

    /* Returns the rank of a copy of any key. */
    template <class Step>
    uint64_t used_there(const Step &step, const Copy &copy) const {
        return has_same_window(copy.tag) ? used(step, copy) : used_by_other(step, copy);
    }

    /* Returns true if this tag, of any key, is less than two epochs old. */
    template <class Step>
    bool is_recent_there(const Step &step, uint64_t tag) const {
        return has_same_window(tag) ? tag::age(tag, tag_) < 2 : is_recent_other(step, tag);
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
        if (!has_same_window(copy.tag)) { return other_expires_ms(step, copy); }
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

private:
    /* The next functions are for slots of other windows.  Arguments are copied, so that requests
     * that meet no such slot keep their values in registers. */

    template <class Step>
    [[gnu::noinline]] static uint64_t used_by_other(Step step, Copy copy) {
        return copy.kind == Copy::confirmed ? step.other_window_slots().used(copy) : 0;
    }

    template <class Step>
    [[gnu::noinline]] static uint64_t other_expires_ms(Step step, Copy copy) {
        return copy.kind == Copy::confirmed ? step.other_window_slots().expires_ms(copy) : 0;
    }

    template <class Step>
    [[gnu::noinline]] static bool is_recent_other(Step step, uint64_t tag) {
        return step.other_window_slots().is_recent(tag);
    }

protected:
    Slots slots_;
    Key key_;
    uint64_t tag_; /* the key's tag in the present epoch and generation 0 */
};

} // namespace limit_sliding
