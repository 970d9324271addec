/* Copyright (C) the limit_sliding authors */

#include "core/table/zone.hpp"

#include <cstring>

namespace limit_sliding {

namespace {

/* Returns the size of a slot in bytes.  A counter of n parts needs n + 2 events: the present part,
 * n parts before it, and the event before these. */
uint64_t slot_bytes_of(const Policy &policy) {
    if (!policy.has_rings()) { return sizeof(Slot); }
    if (policy.algorithm == Algorithm::kLog) { return sizeof(Slot) + kLogRing * sizeof(Event); }
    uint64_t needed = sizeof(Slot) + (policy.precision + 2) * sizeof(Event);
    uint64_t bytes = sizeof(Line);
    while (bytes < needed) {
        bytes *= 2;
    }
    return bytes;
}

} // namespace

Zone *Zone::init(void *memory, size_t bytes, const Policy &policy, uint64_t offset_ms,
                 const uint8_t secret[kSecretBytes]) {
    uint64_t slot_bytes = slot_bytes_of(policy);
    uint64_t pair_bytes = 2 * Line::kSlots * slot_bytes;

    if (bytes < sizeof(Zone) + pair_bytes) { return nullptr; }

    auto *zone = static_cast<Zone *>(memory);

    std::memcpy(zone->secret, secret, sizeof(zone->secret));
    zone->slot_bytes = slot_bytes;
    zone->pairs = Pairs::of(zone->marks.init(bytes - sizeof(Zone)) / pair_bytes);
    zone->offset_ms = offset_ms;
    zone->window = policy.window();

    return zone;
}

} // namespace limit_sliding
