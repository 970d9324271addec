/*
 * Copyright (C) the limit_sliding authors
 */

/* A claim of a zone in Redis: what to ask, and what was told. */

#ifndef LIMIT_SLIDING_REDIS_REMOTE_CLAIM_HPP
#define LIMIT_SLIDING_REDIS_REMOTE_CLAIM_HPP

#include "redis/remote_zone.hpp"

namespace limit_sliding {

/* Limits of one stage of a place, so that their asks fit into calls. */
constexpr auto kClaimsMax = 32;

/* What decided a claim. */
enum class Source { kLocal = 0, kRedis, kLease, kCache, kFallback };

struct RemoteClaim {
    RemoteZone *zone;
    ngx_str_t key; /* the text */
    Source source;
    uint32_t own; /* told: the key's own limit, or kOwnNone, or kOwnOff */
    Verdict verdict;
    uint64_t taken_ms; /* when it was taken, by the clock of Redis */
    uint64_t taken_of; /* the value before, of a bucket */
};

/* Of a claim that Redis decides. */
inline RemoteClaim &remote_of(const Claim &claim)
{
    return *static_cast<RemoteClaim *>(claim.remote);
}

/* Decides the claim by the verdict that was told. */
inline void set_told(Claim &claim, Outcome outcome)
{
    const Verdict &verdict = remote_of(claim).verdict;

    claim.limit = verdict.limit;
    claim.verdict = &verdict;
    claim.outcome = outcome;
}

} // namespace limit_sliding

#endif
