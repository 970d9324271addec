/* Copyright (C) the limit_sliding authors */

/* Zones for tests and tools that need no cmocka. */

#pragma once

#include <stdlib.h>
#include <string.h>

#include "core/limiter/limiter.hpp"
#include "core/table/zone.hpp"

using namespace limit_sliding;

/* A multiple of kZoneAlign bytes on the heap, for free(). */
static inline void *zone_memory(size_t bytes) {
    void *memory = aligned_alloc(kZoneAlign, (bytes + kZoneAlign - 1) / kZoneAlign * kZoneAlign);

    if (memory == NULL) { abort(); }

    return memory;
}

/* Makes a new zone of such memory, whatever it held. */
static inline Zone *zone_of(void *memory, size_t bytes, const Policy *policy, uint64_t offset_ms) {
    static const uint8_t secret[kSecretBytes] = {1, 2, 3};
    Zone *zone;

    memset(memory, 0, bytes);
    zone = Zone::init(memory, bytes, *policy, offset_ms, secret);

    if (zone == NULL) { abort(); }

    return zone;
}
