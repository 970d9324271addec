/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * The core's part in limits that Redis decides: what its answers mean, which
 * keys it need not be asked about, and when it is not to be asked at all.
 * Times, units and safety are as in limiter.h.
 */

#ifndef LIMIT_SLIDING_REDIS_LOGIC_REMOTE_HPP
#define LIMIT_SLIDING_REDIS_LOGIC_REMOTE_HPP

#include "core/limiter.hpp"

namespace limit_sliding {

/* ---- verdicts ---- */

/* A key as the script found it, before it granted anything. */
struct RemoteState {
    uint64_t now_ms;       /* of the server's clock */
    uint32_t limit;        /* in force, 1 .. kLimitMax */
    const int64_t *values; /* remote_values() of them:
                                    COUNTER: requests in each part of the
                                    window, precision + 1 of them, the oldest
                                    first; FIXED: requests; buckets: what is
                                    used x window_ms; LOG: requests, the time in
                                    ms of the event whose expiry frees the first
                                    of them, that of the event whose expiry
                                    makes room for the first request that was
                                    rejected; negative: there is none */
};

/* How many values the script returns for a key of this policy. */
unsigned remote_values(const Policy *policy);

/*
 * Describes the key to a request of this cost, as
 * claim_describe() would after the same history.  `granted` is
 * how many requests of the same cost the call had granted before this one,
 * `admitted` whether this one was, too, `look` that none consumed anything.
 */
void remote_describe(const Policy *policy, const RemoteState *remote,
                     uint32_t cost, uint32_t granted, int admitted, int look,
                     Verdict *verdict);

/*
 * A hash of what n >= 1 claims ask: keys, limits, costs, in this order.  Equal
 * claims have equal ones, in all workers and over reloads.
 */
uint64_t claim_hash(const Claim *claims, size_t n);

/*
 * The same of one claim, for the cache of refusals below: the upper half is of
 * the key alone.
 */
uint64_t refusal_hash(const Claim *claim);

/* ---- the slots of a Redis Cluster ---- */

constexpr auto kClusterSlots = 16384;

/* That of what is between the first braces of the name, or of all of it. */
unsigned cluster_slot(const void *key, size_t length);

/* ---- keys known to be exhausted ---- */

struct Refusals;

/*
 * A refusal is believed for so long, then Redis is asked again: the limit of a
 * key may have been changed there.
 */
constexpr auto kRefusalMs = 1000;

struct Refusal {
    uint64_t until_ms; /* nothing is admitted before */
    uint32_t limit;
    uint32_t remaining;
    uint64_t reset_ms; /* when more remains, below 2^42 */
    int admits;        /* 1: it would have been admitted, until_ms is
                                    of no meaning; limits beside one that
                                    rejects are known by such an entry */
};

/*
 * A cache in `memory`: `bytes` long, zeroed, aligned to 64.  It forgets some
 * refusals when there are many; one is never taken for another key's, but for
 * equal 64-bit hashes.  Returns NULL if there is no room for any.
 */
Refusals *refusals_init(void *memory, size_t bytes);

/* `hash` is refusal_hash() of the claim. */
void refusals_add(Refusals *refusals, uint64_t hash, uint64_t now_ms,
                  const Refusal *refusal);

/* Returns 1 and the entry if there is one that holds, or 0. */
int refusals_find(const Refusals *refusals, uint64_t hash, uint64_t now_ms,
                  Refusal *refusal);

/* Forgets all of the claim's key, and perhaps some of others. */
void refusals_forget(Refusals *refusals, const Claim *claim);

/* ---- the circuit breaker ---- */

/* It opens after so many failures in a row, and wants a probe so often. */
constexpr auto kBreakerFailures = 5;
constexpr auto kBreakerIntervalMs = 1000;

/* In shared memory; zeroed it is closed. */
struct Breaker {
    uint64_t failures; /* in a row */
    uint64_t probe_ms; /* when the next probe is due */
};

enum class BreakerState {
    kClosed = 0,
    kOpen,
    kProbe /* open, and the caller is to send a probe:
                                    one of all callers an interval */
};

BreakerState breaker_check(Breaker *breaker, uint64_t now_ms);

/* When the next probe is due, while it is open. */
uint64_t breaker_probe_ms(const Breaker *breaker);

/* 1 unless it is closed; changes nothing. */
int breaker_is_open(const Breaker *breaker);

/* Returns 1 if that closed it. */
int breaker_succeeded(Breaker *breaker);

/*
 * Returns 1 if that opened it.  `random`, any number, spreads the probes of
 * many servers over the last quarter of the interval.
 */
int breaker_failed(Breaker *breaker, uint64_t now_ms, uint32_t random);

} // namespace limit_sliding

#endif
