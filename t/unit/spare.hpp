/* Copyright (C) the limit_sliding authors */

/* Zones where a new key has only its spare lines. */

#pragma once

#include "support.hpp"

#include "core/table/zone.hpp"

/* The smallest zone with spare lines: those of every key are the last pair. */
#define SPARE_ZONE_BYTES (kZoneAlign + 32 * 128)

#define FILLER 1000000u

/*
 * Has a key take the units, and puts that into each slot of all lines but the
 * spare ones: whatever other key comes finds them full.
 */
static inline void fill_but_spare(Zone *zone, const Policy *policy, uint32_t limit, uint32_t units,
                                  uint64_t now_ms) {
    WordSlots slots(zone);
    Slot *filler = nullptr;

    assert_true(admits(zone, policy, FILLER, limit, units, now_ms));

    for (uint64_t i = 0; i < 2 * zone->pairs.hashed * Line::kSlots; i++) {
        Slot &slot = slots.slot(i / Line::kSlots, i % Line::kSlots);

        if (slot.tag != 0) { filler = &slot; }
    }

    assert_non_null(filler);

    for (uint64_t i = 0; i < 2 * zone->pairs.hashed * Line::kSlots; i++) {
        Slot &slot = slots.slot(i / Line::kSlots, i % Line::kSlots);

        slot.state = filler->state.load();
        slot.tag = filler->tag.load();
    }
}

/* Returns how many slots of the spare lines are in use. */
static inline unsigned spare_in_use(Zone *zone) {
    WordSlots slots(zone);
    unsigned used = 0;

    for (uint64_t i = 2 * zone->pairs.hashed * Line::kSlots;
         i < 2 * zone->pairs.all() * Line::kSlots; i++) {
        used += slots.slot(i / Line::kSlots, i % Line::kSlots).tag != 0;
    }

    return used;
}
