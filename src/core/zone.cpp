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

namespace limit_sliding {

namespace {

/*
 * A counter of n parts weights one more, and needs what was used before that:
 * n + 2 events, the present one included.
 */
uint64_t slot_bytes(const Policy &policy)
{
    if (!has_rings(policy)) {
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
Walk walk(const Zone *zone, const Policy &policy, uint64_t now_ms,
          uint32_t limit, uint64_t lines)
{
    auto memory = const_cast<Zone *>(zone);
    uint64_t time_ms = now_ms + zone->offset_ms;
    Walk seen = {0, 0};

    auto walk_slots = [&](const auto &slots, uint64_t epoch, const auto &step) {
        /* any key's will do */
        Table table(slots, zone->pairs, &memory->counts, 0, epoch);

        for (uint64_t i = 0; i < lines; i++) {
            for (unsigned j = 0; j < Line::kSlots; j++) {
                Slot &slot = slots.slot(i, j);

                seen.used += slot.tag.load() != 0;
                seen.live += table.is_live(slot, step);
            }
        }
    };

    if (has_rings(policy)) {
        RingSlots slots(memory);
        Clock clock(policy, time_ms);

        walk_slots(slots, clock.epoch(), RingStep(clock, slots.ring_length()));
        return seen;
    }

    with_algorithm(policy, time_ms, limit, [&](const auto &algorithm) {
        walk_slots(WordSlots(memory), algorithm.epoch(),
                   WordStep(algorithm, 0));
    });

    return seen;
}

} // namespace

Zone *zone_init(void *memory, size_t bytes, const Policy *policy,
                uint64_t offset_ms, const uint8_t secret[kSecretBytes])
{
    uint64_t pair_bytes = 2 * Line::kSlots * slot_bytes(*policy);

    if (bytes < sizeof(Zone) + pair_bytes) {
        return nullptr;
    }

    auto zone = static_cast<Zone *>(memory);

    std::memcpy(zone->secret, secret, sizeof(zone->secret));
    zone->slot_bytes = slot_bytes(*policy);
    zone->pairs = (bytes - sizeof(*zone)) / pair_bytes;
    zone->offset_ms = offset_ms;

    return zone;
}

uint64_t zone_hash(const Zone *zone, const void *key, size_t bytes)
{
    return SipHash13(zone->secret[0], zone->secret[1]).hash(key, bytes);
}

void zone_stats(const Zone *zone, ZoneStats *stats)
{
    stats->slots = zone->pairs * 2 * Line::kSlots;
    stats->used = load(&zone->counts.used);
    stats->evicted = load(&zone->counts.evicted);
    stats->refused = load(&zone->counts.refused);
}

uint64_t zone_count(const Zone *zone, const Policy *policy, uint64_t now_ms,
                    uint32_t limit)
{
    return walk(zone, *policy, now_ms, limit, 2 * zone->pairs).live;
}

uint64_t zone_keys(const Zone *zone, const Policy *policy, uint64_t now_ms,
                   uint32_t limit, uint64_t used, uint64_t bytes)
{
    uint64_t all = 2 * zone->pairs;
    uint64_t lines = std::min(all, bytes / (Line::kSlots * zone->slot_bytes));
    Walk seen = walk(zone, *policy, now_ms, limit, lines);

    if (lines == all) {
        return seen.live;
    }

    return seen.used == 0 ? used : used * seen.live / seen.used;
}

} // namespace limit_sliding
