/* Copyright (C) the limit_sliding authors */

/* What a zone's keys have in common, and how a key is described. */

#pragma once

#include <cstdint>

#include "core/window.hpp"

namespace limit_sliding {

/* Limits, in requests a window: of algorithms that keep one number in a state,
 * of those that keep several, and of those that Redis decides.  Its numbers are
 * exact up to 2^53. */
constexpr uint64_t kLimitMax = 1000000000;
constexpr uint64_t kNarrowMax = 4194302;
constexpr uint64_t kRemoteMax = 1000000000000000;

/* The largest cost that can be settled: numbers of JSON and of Redis are exact up to
 * that. */
constexpr uint64_t kSettledMax = uint64_t{1} << 53;

/* The largest cost in shared memory.  It is above all limits there, and so
 * small that no product of it and a window overflows. */
constexpr uint64_t kCostMax = UINT32_MAX;

/* These stand where a limit is expected that a single key may have. */
constexpr uint64_t kLimitUnset = 0;
constexpr uint64_t kUnlimited = UINT64_MAX;
constexpr uint64_t kBlocked = UINT64_MAX - 1; /* all requests are rejected */

constexpr auto kNever = UINT64_MAX;
constexpr auto kNeverDelayed = UINT32_MAX; /* more than any burst */

/* Whole seconds, rounded up: what clients are told of _ms times. */
constexpr uint64_t seconds(uint64_t ms) { return ms == 0 ? 0 : (ms - 1) / 1000 + 1; }

struct Verdict {
    uint64_t limit;          /* requests a window */
    uint64_t remaining;      /* whole requests left, 0 .. limit */
    uint64_t excess;         /* over the limit if the request were admitted, in
                                1/1000 request; 0: it fits */
    uint64_t reset_ms;       /* until `remaining` grows; 0: it is full */
    uint64_t retry_after_ms; /* until the request would be admitted if nobody
                                else consumed; 0: it would be now.  kNever:
                                cost > limit */
    uint64_t delay_ms;       /* of a leaky bucket, if the request is admitted:
                                for how long it is to be held back, in whole ms,
                                as limit_req has it */
};

enum class Algorithm {
    kCounter = 0, /* sliding window counter */
    kLog,         /* exact sliding window */
    kFixed,       /* fixed windows */
    kTokenBucket, /* refilled at the limit a window */
    kLeakyBucket  /* a queue that leaves at that rate */
};

enum class WhenFull {
    kEvict = 0, /* a full zone forgets the least used key */
    kDeny       /* a full zone refuses new keys */
};

struct UtcOffsets;

/* What a zone's keys have in common; some have another window, see with_window().
 * It lives in the caller's memory. */
struct Policy {
    uint64_t window_ms; /* as Window::ms */
    Algorithm algorithm;
    WhenFull full;
    uint32_t precision; /* of a counter: parts of a window, 1 .. 60; 0: as many
                           as a state of one word holds (counter_kinds.hpp) */
    uint32_t burst;     /* of a token bucket: its capacity, 0: the limit; of a
                           leaky bucket: requests that may wait */
    bool strict;        /* a counter counts its oldest part in full */
    Calendar calendar;  /* of fixed windows */

    /* Of local time, for windows of the calendar; null: UTC. */
    const UtcOffsets *offsets;

    /* Not 0 if the window is not the zone's.  The hash of a claim under such a policy
     * is that of its key, xor this number, so that each window of a key has a
     * history of its own. */
    uint64_t salt;

    /* Rejected requests are recorded, too.  A log then holds so many units, or those
     * of the limit if that is more: a request under a lower limit is not to push out
     * what a higher one has admitted. */
    bool counts_rejected;
    uint64_t held;

    uint32_t undelayed; /* of a leaky bucket: requests ahead of one that leaves at once;
                           kNeverDelayed: all of them */

    Window window() const { return {window_ms, calendar}; }

    /* Returns the length of the present window, by the zone's time. */
    uint64_t length_ms(uint64_t now_ms) const;

    /* Returns the largest limit, in shared memory or if Redis decides. */
    uint64_t limit_max(bool in_redis = false) const {
        if (algorithm == Algorithm::kLog) { return kNarrowMax; }

        return in_redis ? kRemoteMax : has_rings() ? kNarrowMax : kLimitMax;
    }

    /* Returns the most that may be used at once: the limit, 1 .. limit_max(), or
     * what a bucket holds.  Only so much of a burst counts as runs off in 2^32
     * ms, 49 days. */
    uint64_t capacity(uint64_t limit) const;

    /* Returns the whole requests used, rounded up, by the description of a
     * request of cost 0.  More than the limit if that was lowered since. */
    uint64_t used(const Verdict &verdict) const;

    /* True if a request that is admitted may have to wait. */
    bool may_delay() const {
        return algorithm == Algorithm::kLeakyBucket && undelayed != kNeverDelayed;
    }

    /* True if the state of a key takes more than a word. */
    bool has_rings() const { return algorithm == Algorithm::kLog || precision > 1; }
};

/* A key's history in 62 bits, meaningful to its algorithm; 0: none. */
using State = uint64_t;

} // namespace limit_sliding
