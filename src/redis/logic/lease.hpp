/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * Leases: units of a key's quota that were taken from Redis in advance, to be
 * spent by all workers of this node without asking.  A unit is a request of
 * cost 1.  Times, units and safety are as in limiter.h; docs/redis.md proves
 * that no window admits more than it would without leases.
 */

#ifndef LIMIT_SLIDING_REDIS_LOGIC_LEASE_HPP
#define LIMIT_SLIDING_REDIS_LOGIC_LEASE_HPP

#include "core/limiter.hpp"
#include "redis/logic/remote.hpp"

namespace limit_sliding {

/*
 * So long after Redis was asked its units are spent, then one request asks
 * whether the key has still the same limit.
 */
constexpr auto kLeaseMs = 1000;

/* Sized by demand. */
constexpr auto kLeaseAuto = UINT32_MAX;

struct Leases;

/*
 * A table of them in `memory`: `bytes` long, zeroed, aligned to 64.  A unit is
 * spent once, and for its own key, whatever processes die on the way; some may
 * be lost then.  Returns NULL if there is no room for any.
 */
Leases *leases_init(void *memory, size_t bytes);

/* 1 if keys of such a zone can have leases, else 0. */
int leases_are_of(const Policy *policy);

/* 1 if units can be leased to such a claim of one, else 0. */
int leases_can(const Claim *claim);

/*
 * How many units to ask for beyond `needed`, which requests wait for.  `size`
 * is how many a lease has, or kLeaseAuto: then those that the
 * key's demand on this node since the last time would use up in a 128th of
 * the window (or of its part), or in 250 ms; at most twice what it was, and
 * at most a 32nd of what Redis has left.  A lone request, which says little,
 * is asked as much again for if it came within twice that time of the last
 * one, and within four times of the one before; else nothing.
 */
uint32_t leases_want(const Leases *leases, const Claim *claim, uint32_t size,
                     uint32_t needed, uint64_t now_ms);

/*
 * Redis, asked at `sent_ms`, had this key as told, granted `needed` units to
 * requests and `units` beyond them.  They are added to what is left of units of
 * the same window, if the key's limit has not changed.
 */
void leases_add(Leases *leases, const Claim *claim, const RemoteState *remote,
                const Verdict *verdict, uint32_t units, uint64_t sent_ms,
                uint64_t now_ms);

/*
 * Spends the claim's cost.  Returns 1 and describes the key in *verdict, or 0
 * if there are not as many units.  Of which window they were is noted in the
 * claim's state.
 */
int leases_spend(Leases *leases, Claim *claim, uint64_t now_ms,
                 Verdict *verdict);

/* Units that are left of a key's lease, even if its window is over. */
uint32_t leases_held(const Leases *leases, const Claim *claim);

/*
 * Redis has forgotten what the claim's key has used: all units of the key are
 * lost, whatever limit they were asked for, unless Redis was asked about them
 * later than at `until_ms`.
 */
void leases_forget(Leases *leases, const Claim *claim, uint64_t until_ms);

/* Gives back what was just spent for a claim, unless its window is over. */
void leases_return(Leases *leases, const Claim *claim, uint64_t now_ms);

} // namespace limit_sliding

#endif
