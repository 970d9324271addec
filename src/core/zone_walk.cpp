/* Copyright (C) the limit_sliding authors */

/* Counts the keys of a zone by a walk over its slots. */

#include <algorithm>

#include "core/algorithm.hpp"
#include "core/ring_step.hpp"
#include "core/table.hpp"
#include "core/zone.hpp"
#include "core/zone_slots.hpp"

namespace limit_sliding {

namespace {

struct Walk {
    uint64_t used; /* slots */
    uint64_t live; /* of them */
};

/* Counts the slots of the first so many lines. */
Walk walk(const Zone &walked, const Policy &policy, uint64_t now_ms, uint64_t limit,
          uint64_t lines) {
    auto *zone = const_cast<Zone *>(&walked);
    uint64_t time_ms = now_ms + zone->offset_ms;
    Walk seen = {0, 0};

    auto walk_slots = [&](const auto &slots, uint64_t epoch, const auto &step) {
        /* any key's will do */
        Table table(slots, zone->pairs, &zone->counts, 0, Epoch{epoch, 0});

        for (uint64_t i = 0; i < lines; i++) {
            for (unsigned j = 0; j < Line::kSlots; j++) {
                Slot &slot = slots.slot(i, j);

                seen.used += slot.tag.load() != 0;
                seen.live += table.is_live(slot, step);
            }
        }
    };

    if (policy.has_rings()) {
        RingSlots slots(zone);
        Clock clock(policy, time_ms);

        walk_slots(slots, clock.epoch(), RingStep(zone, policy, clock));
        return seen;
    }

    Claim claim = {};

    claim.zone = zone;
    claim.policy = &policy;
    claim.limit = limit;

    with_algorithm(policy, time_ms, limit, [&](const auto &algorithm) {
        walk_slots(WordSlots(zone), algorithm.epoch(), WordStep(algorithm, 0, claim, time_ms));
    });

    return seen;
}

} // namespace

uint64_t Zone::keys(const Policy &policy, uint64_t now_ms, uint64_t limit, uint64_t used,
                    uint64_t bytes) const {
    uint64_t all = 2 * pairs.all();
    uint64_t lines = std::min(all, bytes / (Line::kSlots * slot_bytes));
    Walk seen = walk(*this, policy, now_ms, limit, lines);

    if (lines == all) { return seen.live; }

    return seen.used == 0 ? used : used * seen.live / seen.used;
}

} // namespace limit_sliding
