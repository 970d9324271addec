/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/base/timeline.hpp"
#include "core/policy/claim.hpp"

namespace limit_sliding {

enum Count {
    kCountPassed = 0,
    kCountDelayed,
    kCountRejected,
    kCountDelayedDryRun,
    kCountRejectedDryRun,
    kCountUnlimited, /* an empty key, no rate, or "off" */
    kCountErrors,
    kCounts
};

/* The number of sources of decisions from Source::kRedis on. */
constexpr auto kRemoteSources = 4;

/* Counters of a zone.  Each worker has an object of two cache lines; additions are atomic in case
 * two workers share an object. */
struct Statistics {
    uint64_t requests[kCounts];
    uint64_t sources[kRemoteSources];
    SlotCounts slots;
    uint64_t bans;            /* bans that have begun */
    uint64_t banned_requests; /* requests that bans have rejected */
};

static_assert(sizeof(Statistics) == 128, "two cache lines, which processors fetch together");

using ZoneTimeline = Timeline<8>;

} // namespace limit_sliding
