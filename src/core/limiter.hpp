/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * The decisions of the core.  It knows neither NGINX nor Redis: it reads no
 * clock, takes no lock, allocates nothing and logs nothing.  Time, memory and
 * randomness are arguments.
 *
 * Units: times are milliseconds (_ms) of one monotonic clock.  Limits and costs
 * are requests.  Functions are safe to call from any number of threads and
 * processes on the same zone unless they say otherwise.
 */

#ifndef LIMIT_SLIDING_CORE_LIMITER_HPP
#define LIMIT_SLIDING_CORE_LIMITER_HPP

#include <cstddef>
#include <cstdint>

namespace limit_sliding {

constexpr auto kLimitMax = 4194302u; /* requests a window */
constexpr auto kWindowMinMs = 100u;
constexpr auto kWindowMaxMs = 2592000000u; /* 30 d */

/* These stand where a limit is expected that a single key may have. */
constexpr auto kLimitUnset = 0u;
constexpr auto kUnlimited = UINT32_MAX;

constexpr auto kNever = UINT64_MAX;

/* Whole seconds, rounded up: what clients are told of _ms times. */
constexpr uint64_t seconds(uint64_t ms)
{
    return ms / 1000 + (ms % 1000 != 0);
}

struct Verdict {
    uint32_t limit;          /* requests a window */
    uint32_t remaining;      /* whole requests left, 0 .. limit */
    uint64_t excess;         /* over the limit if the request were admitted, in
                                1/1000 request; 0: it fits */
    uint64_t reset_ms;       /* until `remaining` grows; 0: it is full */
    uint64_t retry_after_ms; /* until the request would be admitted if nobody
                                else consumed; 0: it would be now.  kNever:
                                cost > limit */
    uint64_t delay_ms;       /* of a leaky bucket, if the request is admitted:
                                for how long it is to be held back */
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

/* What a zone's keys have in common.  It lives in the caller's memory. */
struct Policy {
    uint64_t window_ms;
    Algorithm algorithm;
    WhenFull full;
    uint32_t precision; /* of a counter: parts of a window, 1 .. 60; 0 is as 1
                         */
    uint32_t burst;     /* of a token bucket: its capacity, 0: the limit; of a
                           leaky bucket: requests that may wait */

    /*
     * Returns the most that may be used at once: the limit, 1 .. kLimitMax, or
     * what a bucket holds.  Only so much of a burst counts as runs off in 2^32
     * ms, 49 days.
     */
    uint64_t capacity(uint32_t limit) const;

    /*
     * Returns the whole requests used, rounded up, by the description of a
     * request of cost 0.  More than the limit if that was lowered since.
     */
    uint64_t used(const Verdict &verdict) const;

    /* True if the state of a key takes more than a word. */
    bool has_rings() const
    {
        return algorithm == Algorithm::kLog || precision > 1;
    }
};

/* A key's history in 62 bits, meaningful to its algorithm; 0: none. */
using State = uint64_t;

/*
 * What becomes of a zone's slots.  These counters may be split over the
 * workers, so that none writes where another does.
 */
struct SlotCounts {
    uint64_t used;    /* slots taken into use, which is for good */
    uint64_t evicted; /* live states given up for new keys */
    uint64_t refused; /* new keys refused by WhenFull::kDeny */
};

enum class Outcome {
    kAdmitted = 0,
    kRejected, /* over the limit */
    kRefused,  /* a new key, and the zone is full */
    kUndecided /* set by the caller only: not asked, as another claim rejects
                  the request */
};

/*
 * What a claim is made for.  The core knows the first two; the numbers are
 * those of the script that runs in Redis.
 */
enum class Purpose {
    kConsume = 0,
    kLook = 1,     /* decide, and consume nothing */
    kGiveBack = 2, /* what was consumed */
    kLease = 3     /* consume, and lease units beyond that */
};

struct Zone;

/* The structs of the module's that a claim leads to. */
struct Limit;
struct RemoteClaim;

/* One limit of a request: what to decide, and how it was decided. */
struct Claim {
    Zone *zone;
    const Policy *policy;
    uint64_t hash; /* of the key, by this zone's Zone::hash() */
    uint32_t limit;
    uint32_t cost;
    Purpose purpose;
    const Verdict *verdict; /* of Redis, if it has decided; else null */
    Limit *directive;       /* the caller's: the core does not look at it */
    RemoteClaim *remote;    /* the same; null: Redis is not asked */
    SlotCounts *counts;     /* where to count what becomes of slots; null: in
                               the zone */

    Outcome outcome; /* set by the call */
    State state;     /* the key's, after the call; if the key was refused that
                        of the key which expires first in its place */

    /*
     * Describes a decided claim: to a request that was rejected, or what an
     * admitted one has left.
     */
    Verdict describe(uint64_t now_ms) const;

    /*
     * Returns the verdict's delay_ms alone, at little cost: how long a decided
     * claim holds its request back.  0 if it was not admitted to a queue, or
     * consumed nothing.
     */
    uint64_t delay_ms(uint64_t now_ms) const;

    /* Forgets the history of the claim's key. */
    void forget(uint64_t now_ms) const;
};

/*
 * Decides n >= 1 limits of one request, all or nothing: each is consumed if
 * all admit, none if any rejects.  Returns the index of the claim that
 * describes the request: the one to wait longest for if any rejected (so that
 * its retry time holds for all), else the one with the least share remaining.
 * The request is admitted if that claim's outcome is Outcome::kAdmitted.
 * Of several, those with a verdict keep their outcome, and consume nothing.
 *
 * A state whose time lies ahead of now_ms, because another worker's clock is
 * ahead, is taken as of its own time: a window never moves back.  A cost of 0
 * is admitted while the limit is not exceeded, and changes nothing.
 */
size_t acquire(Claim *claims, size_t n, uint64_t now_ms);

/*
 * Returns the index of the claim that describes a request, of n >= 1 decided
 * ones, as acquire() does.
 */
size_t describing(const Claim *claims, size_t n, uint64_t now_ms);

/*
 * Returns the index of the one with the least share remaining; n >= 1, all
 * admitted.
 */
size_t tightest(const Claim *claims, size_t n, uint64_t now_ms);

/*
 * Takes back what claims that were admitted together have consumed; n >= 0.
 * That must have been less than two hours ago: a bucket tells times apart for
 * little longer.  They are then described as of now, as if they had only
 * looked.
 */
void release(Claim *claims, size_t n, uint64_t now_ms);

} // namespace limit_sliding

#endif
