/* Copyright (C) the limit_sliding authors */

/* Claims of zones in Redis: the question, the answer, and who waits. */

#pragma once

#include "core/limit_cache.hpp"
#include "core/zone_memory.hpp"
#include "ngx/array.hpp"
#include "ngx/list.hpp"
#include "redis/logic/leases.hpp"
#include "redis/logic/refusals.hpp"
#include "redis/logic/remote.hpp"

namespace limit_sliding {

struct Ask;
struct Redis;

/* A zone as its Redis sees it. */
struct RemoteZone {
    Redis *redis;
    ngx_str_t prefix; /* of keys, to the brace */
    ngx_str_t name;
    Refusals *refusals;      /* in the zone's memory */
    Leases *leases;          /* this, too; nullptr: none */
    LimitCache *told;        /* this, too: limits of keys; nullptr: a probe's */
    uint32_t lease;          /* their size */
    ngx_atomic_t *log_after; /* this, too: bad limits of keys */
};

/* Limits of one stage of a place, so that asks fit into calls. */
constexpr auto kClaimsMax = 32;

/* Sources of the decision of a claim. */
enum class Source { kLocal = 0, kRedis, kLease, kCache, kFallback };

struct RemoteClaim {
    RemoteZone *zone;
    ngx_str_t key; /* the text */
    Source source;
    OwnLimit own; /* told: the key's */
    Verdict verdict;
    uint64_t asked_limit; /* told: before the key's own one; 0: nothing was told */
    Taken taken;
};

/* Returns the remote part of a claim, which Redis decides. */
inline RemoteClaim &remote_of(const Claim &claim) {
    return *static_cast<RemoteClaim *>(claim.remote);
}

/* Decides the claim by the verdict that was told. */
inline void set_told(Claim &claim, Outcome outcome) {
    RemoteClaim &remote = remote_of(claim);
    const Verdict &verdict = remote.verdict;
    remote.asked_limit = claim.limit;
    claim.limit = verdict.limit;
    claim.verdict = &verdict;
    claim.outcome = outcome;
}

/* The answer to a waiter, whose claims have their outcomes unless it failed.  The
 * least answer to its parts is that to a request in parts. */
enum class Told { kFailed = 0, kRejected, kAdmitted };

/* A request, or a part of one, which owns this memory and the claims.  A zeroed
 * one waits for nothing. */
struct Waiter {
    Span<Claim> claims;
    ngx_event_t event; /* its handler is called once it is told */
    Told told;

    ngx_queue_t link;    /* of the ask */
    ngx_queue_t waiting; /* of the client */
    Ask *ask;            /* nullptr: waits no more */
    Waiter **part;       /* where a request in parts has this; becomes nullptr
                            there if the waiter leaves; nullptr: nowhere */
    ngx_msec_t until;
    ngx_uint_t turn; /* its place among the ask's units */
    bool asked;      /* by a call under way */
};

using WaiterList = List<Waiter, &Waiter::link>;
using WaitingList = List<Waiter, &Waiter::waiting>;

} // namespace limit_sliding
