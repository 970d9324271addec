/*
 * Copyright (C) the limit_sliding authors
 */

/* Zones for tests and tools that need no cmocka. */

#ifndef LIMIT_SLIDING_UNIT_ZONE_H
#define LIMIT_SLIDING_UNIT_ZONE_H

#include <stdlib.h>
#include <string.h>

#include "core/limiter.h"

/* A multiple of LIMIT_SLIDING_ZONE_ALIGN bytes on the heap, for free(). */
static inline void *zone_memory(size_t bytes)
{
    void *memory = aligned_alloc(LIMIT_SLIDING_ZONE_ALIGN, bytes);

    if (memory == NULL) {
        abort();
    }

    return memory;
}

/* Makes a new zone of such memory, whatever it held. */
static inline limit_sliding_zone_t *zone_of(
    void *memory, size_t bytes, const limit_sliding_policy_t *policy,
    uint64_t offset_ms)
{
    static const uint8_t secret[LIMIT_SLIDING_SECRET_BYTES] = {1, 2, 3};
    limit_sliding_zone_t *zone;

    memset(memory, 0, bytes);
    zone = limit_sliding_zone_init(memory, bytes, policy, offset_ms, secret);

    if (zone == NULL) {
        abort();
    }

    return zone;
}

#endif
