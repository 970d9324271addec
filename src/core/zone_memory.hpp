/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bans.hpp"
#include "core/counters.hpp"
#include "core/histogram.hpp"
#include "core/limit_cache.hpp"
#include "core/offenders.hpp"
#include "core/own_limits.hpp"

namespace limit_sliding {

/* What a zone's memory holds beside the table of its keys. */
struct ZoneMemory {
    Counters *counters;
    size_t ncounters;
    DecisionTimes *times; /* of a part of the requests */
    Offenders *offenders;
    LimitCache *redis_limits;    /* keys' own limits, as Redis told them last;
                                    null: no Redis */
    LimitCache *variable_limits; /* limits that the last request of a key had
                                    by a variable */
    OwnLimits *own_limits;
    Bans *bans;   /* null: it has none */
    size_t bytes; /* of all; the rest is for Zone::init() */

    /* What the zone has, a mask: Redis takes another 16th of the memory, variables a
     * 24th, bans an 8th. */
    enum { kRedis = 1, kVariables = 2, kBans = 4 };

    /* Takes a part of a zone's memory, which is as Zone::init() wants it: the bytes
     * for the own limits of so many keys, and of what is left 4% of 32k, 1.5% of
     * 1m, and what the mask adds. */
    void init(void *memory, size_t size, unsigned mask, size_t own_limits_max,
              const uint8_t secret[kSecretBytes]);
};

} // namespace limit_sliding
