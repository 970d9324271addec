/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/epoch.hpp"
#include "core/slot.hpp"

namespace limit_sliding {

/*
 * Slots that have not the window of a request's key, as that request sees them.
 *
 * `shared` is the step (table.hpp) of a request whose key has the zone's window.
 * It knows the time of such slots.  If a slot's key has a window of its own, only
 * the slot's tag tells its time, and the state tells what was used until its epoch
 * is over:
 *
 *     uint64_t used_at_all(copy, digits) const   of a window of so many digits, but
 *                                                as if it were of the zone's
 */
template <class Step>
class Others {
public:
    Others(const Step &shared, uint64_t epoch, const OwnEpochs &epochs)
        : shared_(shared), epoch_(epoch), epochs_(epochs) {}

    /* True if a slot with this tag may have a state that counts. */
    bool is_recent(uint64_t tag) const { return tag::age(tag, now(tag)) < 2; }

    uint64_t used(const Copy &copy) const {
        if (!is_recent(copy.tag)) { return 0; }

        return tag::is_own(copy.tag) ? shared_.used_at_all(copy, tag::digits(copy.tag))
                                     : shared_.used(copy);
    }

    uint64_t expires_ms(const Copy &copy) const {
        if (!is_recent(copy.tag)) { return 0; }

        return tag::is_own(copy.tag) ? until_over_ms(copy.tag) : shared_.expires_ms(copy);
    }

private:
    uint64_t number(uint64_t tag) const {
        return tag::is_own(tag) ? epochs_.number(tag::digits(tag)) : epoch_;
    }

    /* Returns the tag in the present epoch. */
    uint64_t now(uint64_t tag) const { return tag::in_epoch(tag, number(tag)); }

    /* Returns the ms until the tag, which is recent, is two epochs old. */
    uint64_t until_over_ms(uint64_t tag) const {
        uint64_t left = 2 + tag::age(now(tag), tag) - tag::age(tag, now(tag));

        return ((number(tag) + left) << epochs_.shift(tag::digits(tag))) - epochs_.now_ms();
    }

    Step shared_;
    uint64_t epoch_; /* of that step */
    OwnEpochs epochs_;
};

} // namespace limit_sliding
