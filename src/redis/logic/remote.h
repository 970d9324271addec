/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * The core's part in limits that Redis decides: what its answers mean, which
 * keys it need not be asked about, and when it is not to be asked at all.
 * Times, units and safety are as in limiter.h.
 */

#ifndef LIMIT_SLIDING_CORE_REMOTE_H
#define LIMIT_SLIDING_CORE_REMOTE_H

#include "core/limiter.h"

#ifdef __cplusplus
extern "C" {
#endif


/* ---- verdicts ---- */

/* A key as the script found it, before it granted anything. */
typedef struct {
    uint64_t        now_ms;      /* of the server's clock */
    uint32_t        limit;       /* in force, 1 .. LIMIT_SLIDING_LIMIT_MAX */
    const int64_t  *values;      /* limit_sliding_remote_values() of them:
                                    COUNTER: requests in each part of the
                                    window, precision + 1 of them, the oldest
                                    first; FIXED: requests; buckets: what is
                                    used x window_ms; LOG: requests, the time in
                                    ms of the event whose expiry frees the first
                                    of them, that of the event whose expiry
                                    makes room for the first request that was
                                    rejected; negative: there is none */
} limit_sliding_remote_t;

/* How many values the script returns for a key of this policy. */
unsigned limit_sliding_remote_values(const limit_sliding_policy_t *policy);

/*
 * Describes the key to a request of this cost, as
 * limit_sliding_claim_describe() would after the same history.  `granted` is
 * how many requests of the same cost the call had granted before this one,
 * `admitted` whether this one was, too, `look` that none consumed anything.
 */
void limit_sliding_remote_describe(const limit_sliding_policy_t *policy,
    const limit_sliding_remote_t *remote, uint32_t cost, uint32_t granted,
    int admitted, int look, limit_sliding_verdict_t *verdict);

/*
 * A hash of what n >= 1 claims ask: keys, limits, costs, in this order.  Equal
 * claims have equal ones, in all workers and over reloads.
 */
uint64_t limit_sliding_claim_hash(const limit_sliding_claim_t *claims,
    size_t n);

/*
 * The same of one claim, for the cache of refusals below: the upper half is of
 * the key alone.
 */
uint64_t limit_sliding_refusal_hash(const limit_sliding_claim_t *claim);


/* ---- the slots of a Redis Cluster ---- */

#define LIMIT_SLIDING_CLUSTER_SLOTS  16384

/* That of what is between the first braces of the name, or of all of it. */
unsigned limit_sliding_cluster_slot(const void *key, size_t length);


/* ---- keys known to be exhausted ---- */

typedef struct limit_sliding_refusals_s  limit_sliding_refusals_t;

/*
 * A refusal is believed for so long, then Redis is asked again: the limit of a
 * key may have been changed there.
 */
#define LIMIT_SLIDING_REFUSAL_MS  1000

typedef struct {
    uint64_t  until_ms;          /* nothing is admitted before */
    uint32_t  limit;
    uint32_t  remaining;
    uint64_t  reset_ms;          /* when more remains, below 2^42 */
    int       admits;            /* 1: it would have been admitted, until_ms is
                                    of no meaning; limits beside one that
                                    rejects are known by such an entry */
} limit_sliding_refusal_t;

/*
 * A cache in `memory`: `bytes` long, zeroed, aligned to 64.  It forgets some
 * refusals when there are many; one is never taken for another key's, but for
 * equal 64-bit hashes.  Returns NULL if there is no room for any.
 */
limit_sliding_refusals_t *limit_sliding_refusals_init(void *memory,
    size_t bytes);

/* `hash` is limit_sliding_refusal_hash() of the claim. */
void limit_sliding_refusals_add(limit_sliding_refusals_t *refusals,
    uint64_t hash, uint64_t now_ms, const limit_sliding_refusal_t *refusal);

/* Returns 1 and the entry if there is one that holds, or 0. */
int limit_sliding_refusals_find(const limit_sliding_refusals_t *refusals,
    uint64_t hash, uint64_t now_ms, limit_sliding_refusal_t *refusal);

/* Forgets all of the claim's key, and perhaps some of others. */
void limit_sliding_refusals_forget(limit_sliding_refusals_t *refusals,
    const limit_sliding_claim_t *claim);


/* ---- the circuit breaker ---- */

/* It opens after so many failures in a row, and wants a probe so often. */
#define LIMIT_SLIDING_BREAKER_FAILURES     5
#define LIMIT_SLIDING_BREAKER_INTERVAL_MS  1000

/* In shared memory; zeroed it is closed. */
typedef struct {
    uint64_t  failures;          /* in a row */
    uint64_t  probe_ms;          /* when the next probe is due */
} limit_sliding_breaker_t;

typedef enum {
    LIMIT_SLIDING_BREAKER_CLOSED = 0,
    LIMIT_SLIDING_BREAKER_OPEN,
    LIMIT_SLIDING_BREAKER_PROBE  /* open, and the caller is to send a probe:
                                    one of all callers an interval */
} limit_sliding_breaker_state_t;

limit_sliding_breaker_state_t limit_sliding_breaker_check(
    limit_sliding_breaker_t *breaker, uint64_t now_ms);

/* When the next probe is due, while it is open. */
uint64_t limit_sliding_breaker_probe_ms(
    const limit_sliding_breaker_t *breaker);

/* 1 unless it is closed; changes nothing. */
int limit_sliding_breaker_is_open(const limit_sliding_breaker_t *breaker);

/* Returns 1 if that closed it. */
int limit_sliding_breaker_succeeded(limit_sliding_breaker_t *breaker);

/*
 * Returns 1 if that opened it.  `random`, any number, spreads the probes of
 * many servers over the last quarter of the interval.
 */
int limit_sliding_breaker_failed(limit_sliding_breaker_t *breaker,
    uint64_t now_ms, uint32_t random);


#ifdef __cplusplus
}
#endif

#endif /* LIMIT_SLIDING_CORE_REMOTE_H */
