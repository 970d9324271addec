/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/policy/tag_epoch.hpp"
#include "core/table/slot.hpp"

namespace limit_sliding {

/* A slot with another window than the request's, as the request sees it. */
struct OtherWindowSlot {
    bool is_recent;      /* the tag is less than two epochs old */
    uint64_t used;       /* rank of the state; 0: expired, or no state */
    uint64_t expires_ms; /* ms until the state expires; 0 as for `used` */

    /*
     * Looks at a copy.  `shared` is the step (table.hpp) for keys with the zone's window, and
     * `epoch` its present epoch.  For keys with their own window, only the tag of a slot tells the
     * age of the state.  So their used units count until the tag is two epochs old:
     *
     *     uint64_t used_at_all(copy, digits) const   rank of a state with a window of
     *                                                `digits` digits, as if the state
     *                                                were in the zone's window
     */
    template <class Step>
    static OtherWindowSlot of(const Copy &copy, const Step &shared, uint64_t epoch,
                              const KeyEpochs &epochs) {
        const uint64_t tag = copy.tag;
        const bool is_shared = !tag::has_key_window(tag);
        const uint64_t number = is_shared ? epoch : epochs.number(tag::digits(tag));
        const uint64_t now = tag::in_epoch(tag, number);

        if (tag::age(tag, now) >= 2) { return {false, 0, 0}; }

        if (copy.kind != Copy::confirmed) { return {true, 0, 0}; }

        if (is_shared) { return {true, shared.used(copy), shared.expires_ms(copy)}; }

        const uint64_t end = number + 2 + tag::age(now, tag) - tag::age(tag, now);
        return {true, shared.used_at_all(copy, tag::digits(tag)),
                (end << epochs.shift(tag::digits(tag))) - epochs.now_ms};
    }
};

} // namespace limit_sliding
