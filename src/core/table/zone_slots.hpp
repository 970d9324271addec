/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/table/ring.hpp"
#include "core/table/slot.hpp"
#include "core/table/zone.hpp"

namespace limit_sliding {

/* Slots of 16 bytes, for states of one word. */
struct WordSlots {
    Zone *zone;

    explicit WordSlots(Zone *zone_of_slots) : zone(zone_of_slots) {}

    Slot &slot(uint64_t line, unsigned number) const {
        return reinterpret_cast<Line *>(zone->slots())[line].slot[number];
    }

    void mark(const Slot &slot) const { zone->marks.mark(zone->slots(), &slot); }
};

/* Slots that are followed by a ring. */
struct RingSlots {
    Zone *zone;
    uint64_t slot_bytes;

    explicit RingSlots(Zone *zone_of_slots)
        : zone(zone_of_slots), slot_bytes(zone_of_slots->slot_bytes) {}

    Slot &slot(uint64_t line, unsigned number) const {
        char *place = zone->slots() + (line * Line::kSlots + number) * slot_bytes;
        return *reinterpret_cast<Slot *>(place);
    }

    void mark(const Slot &slot) const { zone->marks.mark(zone->slots(), &slot); }

    unsigned ring_length() const {
        return static_cast<unsigned>((slot_bytes - sizeof(Slot)) / sizeof(Event));
    }
};

inline SlotCounts *counts_of(const Claim &claim) {
    return claim.counts != nullptr ? claim.counts : &claim.zone->counts;
}

} // namespace limit_sliding
