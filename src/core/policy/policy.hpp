/* Copyright (C) the limit_sliding authors */

/* The policy of a zone: the algorithm, the window and the burst that its keys share.  The limit
 * belongs to each claim.  A key with an override may have another window, and then has a policy of
 * its own.  A verdict describes a key as the client sees it. */

#pragma once

#include <cstdint>

#include "core/policy/window.hpp"

namespace limit_sliding {

/* The largest limits in requests a window: for states of one word, for rings, and for Redis, where
 * numbers are exact up to 2^53. */
constexpr uint64_t kLimitMax = 1000000000;
constexpr uint64_t kNarrowMax = 4194302;
constexpr uint64_t kRemoteMax = 1000000000000000;

/* The largest cost of a settlement: numbers in JSON and Redis are exact up to 2^53. */
constexpr uint64_t kSettledMax = uint64_t{1} << 53;

/* The largest cost in shared memory.  It exceeds all limits there, and its product with a window
 * fits 64 bits. */
constexpr uint64_t kCostMax = UINT32_MAX;

/* The largest Policy::precision. */
constexpr unsigned kPartsMax = 60;

/* Special values of the limit of an override. */
constexpr uint64_t kLimitUnset = 0;
constexpr uint64_t kLimitOff = UINT64_MAX;
constexpr uint64_t kLimitBlocked = UINT64_MAX - 1; /* all requests are rejected */

constexpr auto kNever = UINT64_MAX;
constexpr auto kNeverDelayed = UINT32_MAX; /* larger than any burst */

/* Converts ms to whole seconds for clients, rounded up. */
constexpr uint64_t seconds(uint64_t ms) { return ms == 0 ? 0 : (ms - 1) / 1000 + 1; }

struct Verdict {
    uint64_t limit;          /* requests a window */
    uint64_t remaining;      /* whole requests left, 0 .. limit */
    uint64_t excess;         /* units beyond the limit if the request were admitted, in 1/1000
                                request; 0 if it fits */
    uint64_t reset_ms;       /* ms until `remaining` grows; 0 if the full capacity remains */
    uint64_t retry_after_ms; /* ms until the request would be admitted if no other request consumed;
                                0: now; kNever: cost > capacity, or units in flight */
    uint64_t delay_ms;       /* ms by which a leaky bucket delays an admitted request, rounded down
                                as limit_req does */
};

enum class Algorithm {
    kCounter = 0, /* sliding window counter */
    kLog,         /* exact sliding window */
    kFixed,       /* fixed windows */
    kTokenBucket, /* refilled at the rate of the limit */
    kLeakyBucket, /* a queue, drained at the rate of the limit */
    kInFlight     /* units in use at once, without a window */
};

enum class WhenFull {
    kEvict = 0, /* a full zone evicts the state that constrains its key least */
    kDeny       /* a full zone rejects new keys */
};

struct UtcOffsets;

/* The settings of a zone's keys.  Keys with an override may have another window, see
 * with_window().  The caller owns the policy. */
struct Policy {
    uint64_t window_ms; /* length of the window, as Window::ms; 0: none */
    Algorithm algorithm;
    WhenFull full;
    uint32_t
        precision;  /* parts of a counter's window, 1 .. kPartsMax; 0: as many as fit a state of one
                           word (counter_kinds.hpp) */
    uint32_t burst; /* capacity of a token bucket, 0: the limit; requests that may wait in a
                           leaky bucket */
    bool strict;    /* a counter does not fade its oldest part */
    Calendar calendar; /* calendar of fixed windows */

    /* Offsets of local time for calendar windows; null: UTC. */
    const UtcOffsets *offsets;

    /* 0 if the window is the zone's.  Else the salt is xor-ed to the hashes of keys, so that a key
     * has a separate history for each window. */
    uint64_t salt;

    /* Rejected requests are recorded as well.  A log then keeps `held` units, or as many as the
     * claim's limit if that is more: requests under a low limit must not displace units that a
     * higher limit has admitted. */
    bool counts_rejected;
    uint64_t held;

    uint32_t undelayed; /* requests that may wait in a leaky bucket without delaying the next one;
                           kNeverDelayed: all */

    uint64_t zone_limit; /* the zone's limit in requests a window; 0: none */

    Window window() const { return {window_ms, calendar}; }

    /* Return the length in ms, and the number, of the window at a time of the zone.  The windows of
     * an algorithm other than kFixed have no numbers. */
    uint64_t length_ms(uint64_t now_ms) const;
    uint64_t window_number(uint64_t now_ms) const;

    /* Returns the largest limit, in shared memory or in Redis. */
    uint64_t limit_max(bool in_redis = false) const {
        if (algorithm == Algorithm::kLog || is_in_flight()) { return kNarrowMax; }
        return in_redis ? kRemoteMax : has_rings() ? kNarrowMax : kLimitMax;
    }

    /* Returns the units that may be used at once: the limit (1 .. limit_max()), or the size of the
     * bucket.  A burst is capped at the units that drain within 2^32 ms (49 days). */
    uint64_t capacity(uint64_t limit) const;

    /* Returns the used requests, rounded up, from the verdict for a request of cost 0.  The result
     * exceeds the limit if the limit was lowered meanwhile. */
    uint64_t used(const Verdict &verdict) const;

    bool is_in_flight() const { return algorithm == Algorithm::kInFlight; }

    bool is_bucket() const {
        return algorithm == Algorithm::kTokenBucket || algorithm == Algorithm::kLeakyBucket;
    }

    /* Returns true if admitted requests may have to wait. */
    bool may_delay() const {
        return algorithm == Algorithm::kLeakyBucket && undelayed != kNeverDelayed;
    }

    /* Returns true if the state of a key is longer than one word. */
    bool has_rings() const { return algorithm == Algorithm::kLog || precision > 1; }
};

/* The history of a key in 62 bits, encoded by its algorithm; 0: no history. */
using State = uint64_t;

} // namespace limit_sliding
