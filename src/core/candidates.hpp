/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/epoch.hpp"
#include "core/key.hpp"
#include "core/slot.hpp"

namespace limit_sliding {

/*
 * The slots of a table where one key may be, and what they hold.
 *
 * A key takes an unused slot in the first of its lines that has fewer than
 * three in use, else in the first that has fewer than four.  If all are full,
 * it does the same in its spare lines.  Slots of a line fill in order and are
 * never unused again, so a search ends at the first line that has fewer than
 * three in use, and reaches spare lines only if all others are full.
 *
 * Slots tells where slots are in memory: slot(line, number). table.hpp
 * describes Step.
 */
template <class Slots>
class Candidates {
public:
    Candidates(const Slots &slots, const Pairs &pairs, uint64_t hash, const Epoch &epoch)
        : slots_(slots), key_(hash, pairs), tag_(tag::make(key_.fingerprint(), epoch)) {}

    /* Returns the key's copy if it may have a state that counts, else none. */
    Copy look() const {
        Copy copy = {};

        /* a tentative copy may stand before the confirmed one */

        search([&](Slot &slot, bool) {
            copy = inspect(slot);
            return copy.kind == Copy::confirmed;
        });

        return is_recent(copy) ? copy : Copy{};
    }

    /* Returns the key's state; 0 if it has none. */
    uint64_t look_state() const { return look().bare_state(); }

    /* Returns the key's copy in its first line if it needs no more than a
     * state. */
    [[gnu::always_inline]] Copy find_ready() const {
        uint64_t tag;
        Slot *slot = ready_slot(key_.line(0), &tag);

        return slot != nullptr ? Copy::read(*slot, tag) : Copy{};
    }

    /* Returns the same of all lines.  What differs from line to line is known
     * when this is compiled. */
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

    /* True if the slot, of whatever key, holds a state that counts. */
    template <class Step>
    bool is_live(Slot &slot, const Step &step) const {
        return used_there(step, Copy::read(slot)) != 0;
    }

protected:
    /* Calls visit(slot, is_last_of_line) for every slot where the key may be,
     * until it returns true. */
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

    /* Returns the slot of a line that has the key's tag as of now. */
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

    /* Returns the key's tag as of now, in another tag's generation. */
    uint64_t tag_like(uint64_t other) const { return tag_ | tag::generation(other); }

    /* True if the copy, of the key's, may have a state that counts. */
    bool is_recent(const Copy &copy) const {
        return copy.kind == Copy::confirmed && tag::age(copy.tag, tag_) < 2;
    }

    uint64_t live_state(const Copy &copy) const { return is_recent(copy) ? copy.bare_state() : 0; }

    /* Returns how much the key's copy constrains it; 0: as little as no state. */
    template <class Step>
    uint64_t used(const Step &step, const Copy &copy) const {
        return is_recent(copy) ? step.used(copy) : 0;
    }

    /* Returns the same of any key's copy. */
    template <class Step>
    uint64_t used_there(const Step &step, const Copy &copy) const {
        return has_same_window(copy.tag) ? used(step, copy) : used_by_other(step, copy);
    }

    /* True if a slot with this tag, of any key, may have a state that counts. */
    template <class Step>
    bool is_recent_there(const Step &step, uint64_t tag) const {
        return has_same_window(tag) ? tag::age(tag, tag_) < 2 : is_recent_other(step, tag);
    }

    /* True if both the slot and the key have the zone's window. */
    bool has_same_window(uint64_t tag) const { return !tag::is_own(tag | tag_); }

    /* Returns the key's copy in this slot, if there is one. */
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
    /* The next ones are of slots that have another window.  They take copies, so that
     * those of requests that meet none stay in registers. */

    template <class Step>
    [[gnu::noinline]] static uint64_t used_by_other(Step step, Copy copy) {
        return copy.kind == Copy::confirmed ? step.others().used(copy) : 0;
    }

    template <class Step>
    [[gnu::noinline]] static uint64_t other_expires_ms(Step step, Copy copy) {
        return copy.kind == Copy::confirmed ? step.others().expires_ms(copy) : 0;
    }

    template <class Step>
    [[gnu::noinline]] static bool is_recent_other(Step step, uint64_t tag) {
        return step.others().is_recent(tag);
    }

protected:
    Slots slots_;
    Key key_;
    uint64_t tag_; /* the key's as of now, in generation 0 */
};

} // namespace limit_sliding
