/*
 * Copyright (C) the limit_sliding authors
 */

#include "core/zone.hpp"

#include <algorithm>
#include <cstring>

#include "core/algorithm.hpp"
#include "core/atomics.hpp"
#include "core/ring_step.hpp"
#include "core/siphash.hpp"
#include "core/table.hpp"
#include "core/zone_slots.hpp"

namespace limit_sliding {

namespace {

/*
 * Returns the bytes of a slot.  A counter of n parts weighs one more, and needs
 * what was used before that: n + 2 events, the present one included.
 */
uint64_t slot_bytes_of(const Policy &policy)
{
    if (!policy.has_rings()) {
        return sizeof(Slot);
    }

    if (policy.algorithm == Algorithm::kLog) {
        return sizeof(Slot) + kLogRing * sizeof(Event);
    }

    uint64_t needed = sizeof(Slot) + (policy.precision + 2) * sizeof(Event);
    uint64_t bytes = sizeof(Line);

    while (bytes < needed) {
        bytes *= 2;
    }

    return bytes;
}

struct Walk {
    uint64_t used; /* slots */
    uint64_t live; /* of them */
};

/* Counts the slots of the first so many lines. */
Walk walk(const Zone &walked, const Policy &policy, uint64_t now_ms,
          uint32_t limit, uint64_t lines)
{
    auto *zone = const_cast<Zone *>(&walked);
    uint64_t time_ms = now_ms + zone->offset_ms;
    Walk seen = {0, 0};

    auto walk_slots = [&](const auto &slots, uint64_t epoch, const auto &step) {
        /* any key's will do */
        Table table(slots, zone->pairs, &zone->counts, 0, epoch);

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

        walk_slots(slots, clock.epoch(), RingStep(clock, slots.ring_length()));
        return seen;
    }

    with_algorithm(policy, time_ms, limit, [&](const auto &algorithm) {
        walk_slots(WordSlots(zone), algorithm.epoch(), WordStep(algorithm, 0));
    });

    return seen;
}

} // namespace

Zone *Zone::init(void *memory, size_t bytes, const Policy &policy,
                 uint64_t offset_ms, const uint8_t secret[kSecretBytes])
{
    uint64_t slot_bytes = slot_bytes_of(policy);
    uint64_t pair_bytes = 2 * Line::kSlots * slot_bytes;

    if (bytes < sizeof(Zone) + pair_bytes) {
        return nullptr;
    }

    auto *zone = static_cast<Zone *>(memory);

    std::memcpy(zone->secret, secret, sizeof(zone->secret));
    zone->slot_bytes = slot_bytes;
    zone->pairs = (bytes - sizeof(*zone)) / pair_bytes;
    zone->offset_ms = offset_ms;

    return zone;
}

uint64_t Zone::hash(std::string_view key) const
{
    return SipHash13(secret[0], secret[1]).hash(key.data(), key.size());
}

ZoneStats Zone::stats() const
{
    return {pairs * 2 * Line::kSlots, load(&counts.used), load(&counts.evicted),
            load(&counts.refused)};
}

uint64_t Zone::keys(const Policy &policy, uint64_t now_ms, uint32_t limit,
                    uint64_t used, uint64_t bytes) const
{
    uint64_t all = 2 * pairs;
    uint64_t lines = std::min(all, bytes / (Line::kSlots * slot_bytes));
    Walk seen = walk(*this, policy, now_ms, limit, lines);

    if (lines == all) {
        return seen.live;
    }

    return seen.used == 0 ? used : used * seen.live / seen.used;
}

} // namespace limit_sliding
