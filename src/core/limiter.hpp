/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * The border of the core: everything the NGINX side, the unit tests and the
 * benchmarks call.  Behind it is C++ that knows neither NGINX nor Redis: it
 * reads no clock, takes no lock, allocates nothing and logs nothing.  Time,
 * memory and randomness are arguments.
 *
 * Units: times are milliseconds (_ms) of one monotonic clock.  Limits and
 * costs are requests.  Functions are safe to call from any number of threads
 * and processes on the same zone unless they say otherwise.
 */

#ifndef LIMIT_SLIDING_CORE_LIMITER_HPP
#define LIMIT_SLIDING_CORE_LIMITER_HPP

#include <stddef.h>
#include <stdint.h>

namespace limit_sliding {

constexpr auto kLimitMax = 4194302u; /* requests a window */
constexpr auto kWindowMinMs = 100u;
constexpr auto kWindowMaxMs = 2592000000u; /* 30 d */
constexpr auto kSecretBytes = 16;
constexpr auto kZoneAlign = 128; /* bytes */

/* ---- rates ---- */

struct Rate {
    uint64_t count;  /* requests, 1 or more */
    uint64_t per_ms; /* in that time; 0: a bare N, per window */
};

/*
 * Parses "Nr/s", "Nr/m", "Nr/h", "Nr/d" or a bare "N", N a positive integer
 * without sign or leading blanks, of at most 18 digits.
 * Returns 1, or 0 for anything else, leaving *rate alone.
 */
int rate_parse(const char *text, size_t bytes, Rate *rate);

/*
 * floor(rate x window), saturated at UINT64_MAX: the limit of one window.
 * The caller checks it against 1 .. kLimitMax.
 */
uint64_t rate_limit(const Rate *rate, uint64_t window_ms);

/* ---- one key's state, as pure functions ---- */

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

/* What a zone's keys have in common.  Lives in the caller's memory. */
struct Policy {
    uint64_t window_ms;
    Algorithm algorithm;
    WhenFull full;
    uint32_t precision; /* COUNTER: parts of a window,
                                              1 .. 60; 0 is as 1 */
    uint32_t burst;     /* TOKEN_BUCKET: capacity, 0: the
                                              limit; LEAKY_BUCKET: requests
                                              that may wait */
};

/* A key's history in 62 bits, meaningful to its algorithm; 0: none. */
using State = uint64_t;

/*
 * The most that may be used at once: the limit, or what a bucket holds.  Of a
 * burst this is only what runs off in 2^32 ms, 49 days: less than it if the
 * bucket would take longer.  `limit` is 1 .. kLimitMax.
 */
uint64_t capacity(const Policy *policy, uint32_t limit);

/*
 * Would a request of this cost be admitted now?  Returns 1 and the state that
 * records it in *next, or 0 and leaves *next alone: a rejected request is not
 * recorded.  `limit` is 1 .. kLimitMax.  A cost of 0 is
 * admitted while the limit is not exceeded and changes nothing.
 *
 * A state whose time lies ahead of now_ms, because another worker's clock is
 * ahead, is taken as of its own time: a window never moves back.
 *
 * Precondition: the state is at most 128,000 windows old; the zone sees to it.
 */
int admit(const Policy *policy, State state, uint64_t now_ms, uint32_t limit,
          uint32_t cost, State *next);

/*
 * Takes back from a state, as far as it still counts there, the cost that an
 * admission recorded; `recorded` is the state as that admission left it.
 */
State refund(const Policy *policy, State state, uint64_t now_ms, uint32_t limit,
             State recorded, uint32_t cost);

struct Verdict {
    uint32_t limit;          /* requests a window */
    uint32_t remaining;      /* whole requests left, 0 .. limit */
    uint64_t excess;         /* over the limit if the request were
                                    admitted, in 1/1000 request; 0: fits */
    uint64_t reset_ms;       /* until `remaining` grows; 0: it is full */
    uint64_t retry_after_ms; /* until the request would be admitted if
                                    nobody else consumed; 0: it would be now.
                                    kNever: cost > limit */
    uint64_t delay_ms;       /* LEAKY_BUCKET, admitted: to be held back */
};

constexpr auto kNever = UINT64_MAX;

/* Whole seconds, rounded up: what clients are told of _ms times. */
uint64_t seconds(uint64_t ms);

/*
 * Describes a state at a time to a request of this cost that has yet to be
 * decided (or was rejected).  For one that was admitted pass the state after
 * it, and read only limit, remaining and reset_ms.
 */
void describe(const Policy *policy, State state, uint64_t now_ms,
              uint32_t limit, uint32_t cost, Verdict *verdict);

/* Milliseconds until the state is as good as none; 0: it is already. */
uint64_t expires_ms(const Policy *policy, State state, uint64_t now_ms,
                    uint32_t limit);

/* ---- the zone: all keys' states in shared memory ---- */

struct Zone;

/*
 * Makes a zone of `memory`: `bytes` long, zeroed, aligned to
 * kZoneAlign.  The zone is all of it and needs no destruction.
 * Returns NULL if `bytes` is too small for a header and one group of slots.
 * Not safe against concurrent use of the same memory.
 */
Zone *zone_init(void *memory, size_t bytes, const Policy *policy,
                uint64_t offset_ms, const uint8_t secret[kSecretBytes]);

/*
 * What became of slots: counters of the zone's that may be split over the
 * workers, so that none writes where another does.
 */
struct SlotCounts {
    uint64_t used;    /* slots taken into use, which is for good */
    uint64_t evicted; /* live states given up for new keys */
    uint64_t refused; /* new keys refused, full=deny */
};

/* Keyed hash of a key, to be passed to the functions below. */
uint64_t zone_hash(const Zone *zone, const void *key, size_t bytes);

struct ZoneStats {
    uint64_t slots; /* states the zone can hold */
    uint64_t used;
    uint64_t evicted;
    uint64_t refused;
};

/*
 * Reads the counts of claims that named none of their own; each is exact,
 * together they are of no one instant.
 */
void zone_stats(const Zone *zone, ZoneStats *stats);

/*
 * Slots that hold an unexpired key, by a walk over the whole zone.  For tests
 * and tools: a gigabyte takes a good part of a second.
 */
uint64_t zone_count(const Zone *zone, const Policy *policy, uint64_t now_ms,
                    uint32_t limit);

/*
 * The same by a walk over `bytes` of slots at most: exact if the zone has no
 * more, else the share of those in use, `used` in the whole zone, that is live
 * in its first so many slots, which are as good as any as keys are hashed.
 */
uint64_t zone_keys(const Zone *zone, const Policy *policy, uint64_t now_ms,
                   uint32_t limit, uint64_t used, uint64_t bytes);

/* ---- deciding a request ---- */

enum class Outcome {
    kAdmitted = 0,
    kRejected, /* over the limit */
    kRefused,  /* a new key, and the zone is full */
    kUndecided /* set by the caller only: not asked, as
                                    another claim rejects the request */
};

/* One limit of a request: what to decide, and how it was decided. */
struct Claim {
    Zone *zone;
    const Policy *policy;
    uint64_t hash; /* of the key in this zone */
    uint32_t limit;
    uint32_t cost;
    int look;               /* 1: decide, consume nothing */
    const Verdict *verdict; /* decided elsewhere: as told
                                                there; or NULL */
    void *data;             /* the caller's, not looked at */
    void *remote;           /* this one, too */
    SlotCounts *counts;     /* where to count what becomes of
                                                slots; NULL: in the zone */

    Outcome outcome; /* set by the call */
    State state;     /* the key's, after the call; if
                                                REFUSED that of the key which
                                                expires first in its place */
};

/*
 * Decides n >= 1 limits of one request, all or nothing: each is consumed if
 * all admit, none if any rejects.  Returns the index of the claim that
 * describes the request: the one to wait longest for if any rejected (so that
 * its retry time holds for all), else the one with the least share remaining.
 * The request is admitted if that claim's outcome is Outcome::kAdmitted.
 * Of several, those with a verdict keep their outcome, and consume nothing.
 */
size_t acquire(Claim *claims, size_t n, uint64_t now_ms);

/*
 * The index of the claim that describes a request, of n >= 1 decided ones, as
 * acquire() returns it.
 */
size_t describing(const Claim *claims, size_t n, uint64_t now_ms);

/* Forgets the history of the claim's key. */
void forget(const Claim *claim, uint64_t now_ms);

/*
 * Takes back what claims that were admitted together have consumed; n >= 0.
 * That must have been less than two hours ago: a bucket tells times apart for
 * little longer.
 * They are then described as of now, as if they had only looked.
 */
void release(Claim *claims, size_t n, uint64_t now_ms);

/* The index of the one with the least share remaining; n >= 1, all admitted. */
size_t tightest(const Claim *claims, size_t n, uint64_t now_ms);

/*
 * Whole requests used, rounded up, by the description of a request of cost 0.
 * More than the limit if that was lowered since.
 */
uint64_t used(const Policy *policy, uint32_t limit, const Verdict *verdict);

/* describe() of a decided claim. */
void claim_describe(const Claim *claim, uint64_t now_ms, Verdict *verdict);

/*
 * Its delay_ms alone, at little cost: how long a decided claim holds its
 * request back.  0 if it was not admitted to a queue, or looked only.
 */
uint64_t claim_delay_ms(const Claim *claim, uint64_t now_ms);

} // namespace limit_sliding

#endif
