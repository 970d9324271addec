/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/histogram.hpp"
#include "core/facts/bans.hpp"
#include "core/facts/debts.hpp"
#include "core/facts/offenders.hpp"
#include "core/facts/override_cache.hpp"
#include "core/facts/overrides.hpp"
#include "core/holds/ledger.hpp"
#include "core/policy/statistics.hpp"

namespace limit_sliding {

/* The parts of a zone's memory beside the table of its keys. */
struct ZoneMemory {
    Statistics *counters;
    size_t nstatistics;
    DecisionTimes *times;    /* durations of a sample of decisions */
    uint64_t *usage_missing; /* counter of responses without their usage */
    ZoneTimeline *timeline;
    Offenders *offenders;
    OverrideCache *redis_overrides; /* overrides that Redis sent last; null without Redis */
    OverrideCache
        *variable_overrides; /* limits that variables set in the last request of each key */
    Overrides *overrides;
    Debts *debts;   /* null if no key of the zone can owe */
    Bans *bans;     /* null if the zone has no bans */
    Ledger *ledger; /* null without inflight= */
    size_t bytes;   /* size of all parts; the rest of the memory is for Zone::init() */

    /* Optional parts: Redis takes 1/16 of the memory, variables 1/24, bans 1/8, debts 1/32, and
     * the ledger 1/2, so that there are about as many entries as keys. */
    enum { kRedis = 1, kVariables = 2, kBans = 4, kDebts = 8, kLedger = 16 };

    /* Returns the size of the overrides of so many keys, and of the timeline. */
    static size_t separate_bytes(size_t keys);

    /* Takes the parts from a zone's memory, which must meet the conditions of Zone::init().  After
     * the separate parts, the fixed parts take 4% of 32k or 1.5% of 1m, and the optional parts add
     * their share. */
    void init(void *memory, size_t size, unsigned mask, size_t overrides_max,
              const uint8_t secret[kSecretBytes]);
};

} // namespace limit_sliding
