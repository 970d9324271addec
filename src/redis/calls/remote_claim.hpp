/* Copyright (C) the limit_sliding authors */

/* Claims of zones in Redis: the question, the answer, and the waiter. */

#pragma once

#include <algorithm>
#include <optional>

#include "core/facts/bans.hpp"
#include "core/facts/limit_cache.hpp"
#include "core/limiter/zone_memory.hpp"
#include "ngx/array.hpp"
#include "ngx/list.hpp"
#include "redis/protocol/remote_verdict.hpp"
#include "redis/shared/leases.hpp"
#include "redis/shared/refusals.hpp"
#include "redis/wire/settings.hpp"

namespace limit_sliding {

struct Ask;
class BanExchange;
struct BanSpread;
struct Redis;
class Outbox;

/* A zone as its Redis sees it. */
struct RemoteZone {
    Redis *redis;
    ngx_str_t prefix; /* of keys, to the brace */
    ngx_str_t name;
    const Policy *policy;
    Refusals *refusals;              /* in the zone's memory */
    Leases *leases;                  /* this, too; nullptr: none */
    LimitCache *told;                /* this, too: limits of keys; nullptr: a probe's */
    uint32_t lease;                  /* their size */
    std::optional<OnError> on_error; /* that of the Redis, unless it has its own */
    ngx_atomic_t *log_after;         /* this, too: bad limits of keys */
    BanExchange *exchange;           /* this, too; nullptr: it has no bans */
    Bans *bans;                      /* this, too */
    const PenaltyRule *penalty;
    BanSpread *spread;  /* this worker's */
    Outbox *outbox;     /* in the zone's memory; nullptr: it has no "sync=" */
    bool settles;       /* costs of some requests */
    ngx_msec_t sync_ms; /* 0: Redis decides */
};

/* Limits of one stage of a place, so that asks fit into calls. */
constexpr auto kClaimsMax = 32;

/* Sources of the decision of a claim. */
enum class Source { kLocal = 0, kRedis, kLease, kCache, kFallback };

struct RemoteClaim {
    RemoteZone *zone;
    ngx_str_t key; /* the text */
    Source source;
    Override own; /* told: the key's */
    Verdict verdict;
    int64_t ttl_ms;       /* of its limit, by KeyCommand::kAskTtl; negative: it does not end */
    uint64_t asked_limit; /* told: before the key's own one; 0: nothing was told */
    uint64_t pace;        /* Claim::pace(), before anything was told; 0: the limit */
    const Policy *asked;  /* the claim's, before the key's own window; nullptr: it is yet
                             to be asked */
    Policy policy;        /* of that window, if the key has one */
    Taken taken;
    bool is_pending; /* of a zone with "sync=": its cost is among the units to be told */
    bool is_named;   /* the key is its name in Redis, and not the text */
};

/* Returns the remote part of a claim, which Redis decides. */
inline RemoteClaim &remote_of(const Claim &claim) {
    return *static_cast<RemoteClaim *>(claim.remote);
}

/* Makes the claim one of the window that is asked for. */
inline void ask_window(Claim &claim) {
    RemoteClaim &remote = remote_of(claim);
    if (remote.asked == nullptr) { remote.asked = claim.policy; }

    claim.set_policy(*remote.asked);
}

/* Makes the claim one of another policy of its zone, of which it keeps a copy. */
inline void set_policy(Claim &claim, const Policy &policy) {
    RemoteClaim &remote = remote_of(claim);
    ask_window(claim);
    remote.policy = policy;
    claim.set_policy(remote.policy);
}

/* Makes the claim one of the window that the key's override has, the zone's if it
 * has none.  A key without an override has the window that is asked for. */
inline void set_window(Claim &claim, const Override &own) {
    ask_window(claim);
    if (own.window.is_given()) {
        set_policy(claim, with_window(*remote_of(claim).zone->policy, own.window));
    } else if (own.is_set()) {
        claim.set_policy(*remote_of(claim).zone->policy);
    }
}

/* The same by the last reply of Redis about the key: leases, refusals and the counts of
 * this node are of a window. */
inline void know_window(Claim &claim) {
    const LimitCache *told = remote_of(claim).zone->told;
    if (told->has_windows() || claim.policy->salt != 0) {
        set_window(claim, told->find(claim.key_hash()));
    }
}

/* Returns the verdict about a key with an override of 0: as of a cost over an empty
 * limit. */
inline Verdict blocked_verdict(uint64_t cost) {
    Verdict verdict = {};
    verdict.excess = std::min(cost, kCostMax) * 1000;
    verdict.retry_after_ms = kNever;
    return verdict;
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

/* The answer to a waiter.  Its claims have their outcomes unless it failed.  The answer
 * to a request in pieces is the least answer to its pieces. */
enum class Told { kRejected = 0, kFailed, kAdmitted };

/* A request, or a piece of one, which owns this memory and the claims.  A zeroed
 * one waits for nothing. */
struct Waiter {
    Span<Claim> claims;
    ngx_event_t event; /* its handler is called once it is told */
    Told told;

    ngx_queue_t link;    /* of the ask */
    ngx_queue_t waiting; /* of the client */
    Ask *ask;            /* nullptr: waits no more */
    Waiter **part;       /* where a request in pieces has this; becomes nullptr
                            there if the waiter leaves; nullptr: nowhere */
    ngx_msec_t until;
    ngx_uint_t turn; /* its place among the ask's units */
    bool asked;      /* by a call under way */
};

using WaiterList = List<Waiter, &Waiter::link>;
using WaitingList = List<Waiter, &Waiter::waiting>;

} // namespace limit_sliding
