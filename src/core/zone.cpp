/*
 * Copyright (C) the limit_sliding authors
 */

#include "zone.hpp"

#include <cstring>

#include "siphash.hpp"

using limit_sliding::Event;
using limit_sliding::Line;
using limit_sliding::SipHash13;
using limit_sliding::Slot;

namespace {

/*
 * A counter of n parts weights one more, and needs what was used before that:
 * n + 2 events, the present one included.
 */
uint64_t slot_bytes(const limit_sliding_policy_t &policy)
{
    constexpr uint64_t kLogBytes = 128;

    if (!limit_sliding::has_rings(policy)) {
        return sizeof(Slot);
    }

    if (policy.algorithm == LIMIT_SLIDING_LOG) {
        return kLogBytes;
    }

    uint64_t needed = sizeof(Slot) + (policy.precision + 2) * sizeof(Event);
    uint64_t bytes = sizeof(Line);

    while (bytes < needed) {
        bytes *= 2;
    }

    return bytes;
}

} // namespace

limit_sliding_zone_t *limit_sliding_zone_init(
    void *memory, size_t bytes, const limit_sliding_policy_t *policy,
    uint64_t offset_ms, const uint8_t secret[LIMIT_SLIDING_SECRET_BYTES])
{
    uint64_t pair_bytes = 2 * Line::kSlots * slot_bytes(*policy);

    if (bytes < sizeof(limit_sliding_zone_t) + pair_bytes) {
        return nullptr;
    }

    auto zone = static_cast<limit_sliding_zone_t *>(memory);

    std::memcpy(zone->secret, secret, sizeof(zone->secret));
    zone->slot_bytes = slot_bytes(*policy);
    zone->pairs = (bytes - sizeof(*zone)) / pair_bytes;
    zone->offset_ms = offset_ms;

    return zone;
}

uint64_t limit_sliding_zone_hash(const limit_sliding_zone_t *zone,
                                 const void *key, size_t bytes)
{
    return SipHash13(zone->secret[0], zone->secret[1]).hash(key, bytes);
}

void limit_sliding_zone_stats(const limit_sliding_zone_t *zone,
                              limit_sliding_zone_stats_t *stats)
{
    stats->slots = zone->pairs * 2 * Line::kSlots;
    stats->evicted = zone->stats.evicted.load(std::memory_order_relaxed);
    stats->refused = zone->stats.refused.load(std::memory_order_relaxed);
}
