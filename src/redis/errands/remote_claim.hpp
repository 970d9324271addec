/* Copyright (C) the limit_sliding authors */

/* Claims that Redis decides, their verdicts, and the waiters for them. */

#pragma once

#include <optional>

#include "core/facts/bans.hpp"
#include "core/facts/override_cache.hpp"
#include "core/limiter/zone_memory.hpp"
#include "core/policy/terms.hpp"
#include "ngx/containers.hpp"
#include "redis/protocol/remote_state.hpp"
#include "redis/shared/leases.hpp"
#include "redis/shared/refusals.hpp"
#include "redis/wire/settings.hpp"

namespace limit_sliding {

/* True if the module is built with hiredis.  Code for Redis is linked only then, so calls of that
 * code depend on the constant. */
#ifdef LIMIT_SLIDING_WITHOUT_REDIS
constexpr bool kHasRedis = false;
#else
constexpr bool kHasRedis = true;
#endif

struct Ask;
class BanExchange;
struct BanErrand;
struct Redis;
struct Share;
class Outbox;

/* The parts for a Redis in the memory of a zone.  The zone of probes has none. */
struct RemoteMemory {
    Refusals *refusals;
    Leases *leases;                /* nullptr: no leases */
    Outbox *outbox;                /* nullptr: the zone has no "sync=" */
    OverrideCache *last_overrides; /* last limits of keys */
    ngx_atomic_t *log_after;       /* ms from which on a bad limit is logged */
    BanExchange *exchange;         /* nullptr: no bans */
    Bans *bans;                    /* nullptr: no bans */
};

/* A zone of a Redis. */
struct RemoteZone : RemoteMemory {
    Redis *redis;
    ngx_str_t prefix; /* prefix of the names of keys, with the opening brace */
    ngx_str_t shape;  /* their suffix, "}:SHAPE" */
    ngx_str_t name;
    const Policy *policy;
    uint32_t lease;                  /* size of a lease in units, or kLeaseAuto; 0: no leases */
    std::optional<OnError> on_error; /* on_error of the zone, else of the Redis */
    const PenaltyRule *penalty;
    BanErrand *ban_errand; /* this worker's part of the exchange; nullptr: none */
    bool settles;          /* costs of some requests are settled */
    ngx_msec_t sync_ms;    /* interval of "sync=" in ms; 0: Redis decides */
};

/* The most limits of one stage of a location, so that an ask fits into a call. */
constexpr auto kClaimsMax = 32;

/* Sources of the decision of a claim. */
enum class Source { kLocal = 0, kRedis, kLease, kCache, kFallback };

struct RemoteClaim : TermsRoom {
    RemoteZone *zone;
    ngx_str_t key; /* text of the key */
    Source source;
    Override own;         /* override of the key, from the reply */
    int64_t ttl_ms;       /* ms until the key's limit expires, from kAskTtl; negative: never */
    uint64_t asked_limit; /* requested limit, before an override; 0: there was no reply */
    uint64_t pace;        /* Claim::pace() before the reply; 0: the limit */
    const Policy *asked;  /* policy of the requested window; nullptr: the claim's own */
    Taken taken;
    /* State from which Claim::complete() computes `verdict`, after `before` units of the call.
     * Valid if the claim is kGivenLate; without values once the verdict is computed. */
    RemoteState found;
    uint32_t before;
    int64_t values[kCounterValues]; /* values of `found` */
    bool is_pending; /* the cost is among the units to be reported, in a zone with "sync=" */
    Share *share;    /* share that the request has taken units of, with inflight=; else nullptr */
    uint64_t held;   /* these units */
};

/* Returns the remote part of a claim, which Redis decides. */
inline RemoteClaim &remote_of(const Claim &claim) {
    return *static_cast<RemoteClaim *>(claim.remote);
}

/* Returns true if the claim is of a zone with inflight= in Redis. */
inline bool is_held(const Claim &claim) {
    return claim.remote != nullptr && claim.policy->is_in_flight();
}

/* Returns true if the claim is of a zone with "sync=". */
inline bool is_synced(const Claim &claim) {
    return claim.remote != nullptr && remote_of(claim).zone->outbox != nullptr;
}

/* Returns true if Redis decides the claim by its script of rates. */
inline bool is_asked(const Claim &claim) {
    return claim.remote != nullptr && !is_synced(claim) && !is_held(claim);
}

/* Makes the claim one of the requested window. */
inline void ask_window(Claim &claim) {
    RemoteClaim &remote = remote_of(claim);
    if (remote.asked == nullptr) { remote.asked = claim.policy; }

    claim.set_policy(*remote.asked);
}

/* Makes the claim one of a copy of another policy of its zone. */
inline void set_policy(Claim &claim, const Policy &policy) {
    RemoteClaim &remote = remote_of(claim);
    ask_window(claim);
    remote.policy = policy;
    claim.set_policy(remote.policy);
}

/* Makes the claim one of the window of the key's override, or of the zone's window if the override
 * has none.  A key without an override has the requested window. */
inline void set_window(Claim &claim, const Override &own) {
    ask_window(claim);
    if (own.window.is_given()) {
        set_policy(claim, with_window(*remote_of(claim).zone->policy, own.window));
    } else if (own.is_set()) {
        claim.set_policy(*remote_of(claim).zone->policy);
    }
}

/* Returns a copy of a claim that this node's memory can decide. */
inline Claim as_local(Claim claim) {
    claim.standing = Standing::kHere;
    claim.fit_core();
    return claim;
}

/* Does the same with another limit. */
inline Claim as_local(Claim claim, uint64_t limit) {
    claim.limit = limit;
    return as_local(claim);
}

/* Applies the override that Redis has last sent of the key, if it is set, or none. */
inline Terms apply_known(Claim &claim, const Override &own) {
    RemoteClaim &remote = remote_of(claim);
    remote.own = own;
    ask_window(claim);
    return own.is_set() ? apply_override(claim, *remote.zone->policy, own, &remote)
                        : Terms::kLimited;
}

/* Decides the claim by remote.verdict. */
inline void decide_remotely(Claim &claim, Outcome outcome, Standing by = Standing::kGiven) {
    RemoteClaim &remote = remote_of(claim);
    remote.asked_limit = claim.limit;
    claim.limit = remote.verdict.limit;
    claim.decide(by, outcome, remote.verdict);
}

/* Returns true if the claim is a settlement: the reply has no state of its key. */
inline bool is_settled(const Claim &claim) {
    return claim.purpose == Purpose::kGiveBack || claim.purpose == Purpose::kCharge;
}

/* The answer to a waiter.  The claims of the waiter have their outcomes unless it failed.  The
 * answer to a request in pieces is the least answer to its pieces. */
enum class WaitResult { kRejected = 0, kFailed, kAdmitted };

/* The wait of a request, or of a piece of a request, which owns this memory and the claims.  A
 * zeroed waiter waits for nothing. */
struct Waiter {
    Span<Claim> claims;
    ngx_event_t event; /* posted when the wait ends */
    WaitResult result;

    ngx_queue_t link;    /* in a list of the ask */
    ngx_queue_t waiting; /* in a list of the client */
    Ask *ask;            /* nullptr: the wait is over */
    Waiter **part;       /* pointer to this waiter of a request in pieces, set to nullptr if the
                            waiter leaves; nullptr: the request has no pieces */
    ngx_msec_t until;    /* ms of the deadline */
    ngx_uint_t turn;     /* number of the waiter's unit in the call under way, from 0 on */
    bool asked;          /* a call under way asks for the waiter's unit */
};

using WaiterList = List<Waiter, &Waiter::link>;
using WaitingList = List<Waiter, &Waiter::waiting>;

} // namespace limit_sliding
