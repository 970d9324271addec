/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/policy/tag_epoch.hpp"
#include "core/table/slot.hpp"

namespace limit_sliding {

/*
 * A request's view of slots with another window than its own.
 *
 * `shared` is the step (table.hpp) for keys with the zone's window.  For keys with their own
 * window, only the tag of a slot tells the age of the state.  So their used units count until the
 * tag is two epochs old:
 *
 *     uint64_t used_at_all(copy, digits) const   rank of a state with a window of
 *                                                `digits` digits, as if the state
 *                                                were in the zone's window
 */
template <class Step>
class OtherWindowSlots {
public:
    OtherWindowSlots(const Step &shared, uint64_t epoch, const KeyEpochs &epochs)
        : shared_(shared), epoch_(epoch), epochs_(epochs) {}

    /* Returns true if this tag is less than two epochs old. */
    bool is_recent(uint64_t tag) const { return tag::age(tag, now(tag)) < 2; }

    /* Copies are arguments by value, and the functions out of line, so that requests that meet no
     * such slot keep their values in registers. */

    [[gnu::noinline]] uint64_t used(Copy copy) const {
        if (copy.kind != Copy::confirmed || !is_recent(copy.tag)) { return 0; }
        return tag::has_key_window(copy.tag) ? shared_.used_at_all(copy, tag::digits(copy.tag))
                                             : shared_.used(copy);
    }

    [[gnu::noinline]] uint64_t expires_ms(Copy copy) const {
        if (copy.kind != Copy::confirmed || !is_recent(copy.tag)) { return 0; }
        return tag::has_key_window(copy.tag) ? until_over_ms(copy.tag) : shared_.expires_ms(copy);
    }

private:
    uint64_t number(uint64_t tag) const {
        return tag::has_key_window(tag) ? epochs_.number(tag::digits(tag)) : epoch_;
    }

    /* Returns the tag in the present epoch of its window. */
    uint64_t now(uint64_t tag) const { return tag::in_epoch(tag, number(tag)); }

    /* Returns the ms until a recent tag is two epochs old. */
    uint64_t until_over_ms(uint64_t tag) const {
        uint64_t left = 2 + tag::age(now(tag), tag) - tag::age(tag, now(tag));
        return ((number(tag) + left) << epochs_.shift(tag::digits(tag))) - epochs_.now_ms();
    }

    Step shared_;
    uint64_t epoch_; /* present epoch of `shared_` */
    KeyEpochs epochs_;
};

} // namespace limit_sliding
