/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * Leases: units of a key's quota that were taken from Redis in advance, to be
 * spent by all workers of this node without asking.  A unit is a request of
 * cost 1.  Times, units and safety are as in limiter.h; docs/redis.md proves
 * that no window admits more than it would without leases.
 */

#ifndef LIMIT_SLIDING_CORE_LEASE_H
#define LIMIT_SLIDING_CORE_LEASE_H

#include "core/limiter.h"
#include "redis/logic/remote.h"

#ifdef __cplusplus
extern "C" {
#endif


/*
 * So long after Redis was asked its units are spent, then one request asks
 * whether the key has still the same limit.
 */
#define LIMIT_SLIDING_LEASE_MS    1000

/* Sized by demand. */
#define LIMIT_SLIDING_LEASE_AUTO  UINT32_MAX

typedef struct limit_sliding_leases_s  limit_sliding_leases_t;

/*
 * A table of them in `memory`: `bytes` long, zeroed, aligned to 64.  A unit is
 * spent once, and for its own key, whatever processes die on the way; some may
 * be lost then.  Returns NULL if there is no room for any.
 */
limit_sliding_leases_t *limit_sliding_leases_init(void *memory, size_t bytes);

/* 1 if keys of such a zone can have leases, else 0. */
int limit_sliding_leases_are_of(const limit_sliding_policy_t *policy);

/* 1 if units can be leased to such a claim of one, else 0. */
int limit_sliding_leases_can(const limit_sliding_claim_t *claim);

/*
 * How many units to ask for beyond `needed`, which requests wait for.  `size`
 * is how many a lease has, or LIMIT_SLIDING_LEASE_AUTO: then those that the
 * key's demand on this node since the last time would use up in a 128th of
 * the window (or of its part), or in 250 ms; at most twice what it was, and
 * at most a 32nd of what Redis has left.  A lone request, which says little,
 * is asked as much again for if it came within twice that time of the last
 * one, and within four times of the one before; else nothing.
 */
uint32_t limit_sliding_leases_want(const limit_sliding_leases_t *leases,
    const limit_sliding_claim_t *claim, uint32_t size, uint32_t needed,
    uint64_t now_ms);

/*
 * Redis, asked at `sent_ms`, had this key as told, granted `needed` units to
 * requests and `units` beyond them.  They are added to what is left of units of
 * the same window, if the key's limit has not changed.
 */
void limit_sliding_leases_add(limit_sliding_leases_t *leases,
    const limit_sliding_claim_t *claim, const limit_sliding_remote_t *remote,
    const limit_sliding_verdict_t *verdict, uint32_t units, uint64_t sent_ms,
    uint64_t now_ms);

/*
 * Spends the claim's cost.  Returns 1 and describes the key in *verdict, or 0
 * if there are not as many units.  Of which window they were is noted in the
 * claim's state.
 */
int limit_sliding_leases_spend(limit_sliding_leases_t *leases,
    limit_sliding_claim_t *claim, uint64_t now_ms,
    limit_sliding_verdict_t *verdict);

/* Units that are left of a key's lease, even if its window is over. */
uint32_t limit_sliding_leases_held(const limit_sliding_leases_t *leases,
    const limit_sliding_claim_t *claim);

/*
 * Redis has forgotten what the claim's key has used: all units of the key are
 * lost, whatever limit they were asked for, unless Redis was asked about them
 * later than at `until_ms`.
 */
void limit_sliding_leases_forget(limit_sliding_leases_t *leases,
    const limit_sliding_claim_t *claim, uint64_t until_ms);

/* Gives back what was just spent for a claim, unless its window is over. */
void limit_sliding_leases_return(limit_sliding_leases_t *leases,
    const limit_sliding_claim_t *claim, uint64_t now_ms);


#ifdef __cplusplus
}
#endif

#endif /* LIMIT_SLIDING_CORE_LEASE_H */
