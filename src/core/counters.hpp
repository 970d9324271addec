/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/claim.hpp"

namespace limit_sliding {

enum Count {
    kCountPassed = 0,
    kCountDelayed,
    kCountRejected,
    kCountDelayedDryRun,
    kCountRejectedDryRun,
    kCountErrors,
    kCounts
};

constexpr auto kSources = 5;

/*
 * Every worker adds to one of these, two cache lines that no other writes.  If
 * two share one all the same, nothing is lost as long as they add atomically.
 */
struct Counters {
    uint64_t requests[kCounts];
    uint64_t sources[kSources];
    SlotCounts slots;
    uint64_t bans;            /* that have begun */
    uint64_t banned_requests; /* that bans have rejected */

    /* Adds n of them up. */
    static Counters sum(const Counters *counters, size_t n);
};

static_assert(sizeof(Counters) == 128, "two cache lines, which processors fetch together");

} // namespace limit_sliding
