/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_CORE_ZONE_HPP
#define LIMIT_SLIDING_CORE_ZONE_HPP

#include <cstdint>

#include "core/limiter.hpp"
#include "core/ring.hpp"
#include "core/table.hpp"

namespace limit_sliding {

/*
 * The head of a zone's memory; lines of slots follow.  What every request
 * reads shares no cache line with what an eviction writes.
 */
struct Zone {
    uint64_t secret[2];
    uint64_t pairs;
    uint64_t slot_bytes;
    uint64_t offset_ms; /* of the zone's time from the caller's */
    alignas(64) SlotCounts counts;
};

static_assert(sizeof(Zone) == kZoneAlign,
              "a pair of lines starts at a multiple of 128 bytes");
static_assert(kSecretBytes == 16, "two words of secret");

inline char *memory_of(Zone *zone)
{
    return reinterpret_cast<char *>(zone + 1);
}

/* Slots of 16 bytes, of algorithms whose state is one word. */
struct WordSlots {
    Line *lines;

    explicit WordSlots(Zone *zone)
        : lines(reinterpret_cast<Line *>(memory_of(zone)))
    {
    }

    Slot &slot(uint64_t line, unsigned number) const
    {
        return lines[line].slot[number];
    }
};

/* Slots with a ring behind each. */
struct RingSlots {
    char *memory;
    uint64_t slot_bytes;

    explicit RingSlots(Zone *zone)
        : memory(memory_of(zone)), slot_bytes(zone->slot_bytes)
    {
    }

    Slot &slot(uint64_t line, unsigned number) const
    {
        return *reinterpret_cast<Slot *>(
            memory + (line * Line::kSlots + number) * slot_bytes);
    }

    unsigned ring_length() const
    {
        return static_cast<unsigned>((slot_bytes - sizeof(Slot))
                                     / sizeof(Event));
    }
};

inline SlotCounts *counts_of(const Claim &claim)
{
    return claim.counts != nullptr ? claim.counts : &claim.zone->counts;
}

/* Does the state of a key take more than a word? */
inline bool has_rings(const Policy &policy)
{
    return policy.algorithm == Algorithm::kLog || policy.precision > 1;
}

} // namespace limit_sliding

#endif
