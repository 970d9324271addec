/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/table/ring.hpp"
#include "core/table/slot.hpp"
#include "core/table/zone.hpp"

namespace limit_sliding {

/* Slots of 16 bytes, for states of one word. */
struct WordSlots {
    Line *lines;

    explicit WordSlots(Zone *zone) : lines(reinterpret_cast<Line *>(zone->slots())) {}

    Slot &slot(uint64_t line, unsigned number) const { return lines[line].slot[number]; }
};

/* Slots that are followed by a ring. */
struct RingSlots {
    char *memory;
    uint64_t slot_bytes;

    explicit RingSlots(Zone *zone) : memory(zone->slots()), slot_bytes(zone->slot_bytes) {}

    Slot &slot(uint64_t line, unsigned number) const {
        return *reinterpret_cast<Slot *>(memory + (line * Line::kSlots + number) * slot_bytes);
    }

    unsigned ring_length() const {
        return static_cast<unsigned>((slot_bytes - sizeof(Slot)) / sizeof(Event));
    }
};

inline SlotCounts *counts_of(const Claim &claim) {
    return claim.counts != nullptr ? claim.counts : &claim.zone->counts;
}

} // namespace limit_sliding
