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

/* A claim's look of what is given back. */
constexpr auto kLookGiveBack = 2;

/* And of a bucket of which some units are leased. */
constexpr auto kLookLeased = 3;

/* Added to it if units of the key are left here. */
constexpr auto kLookHeld = 4;

enum class Source { kLocal = 0, kRedis, kLease, kCache, kFallback };

struct RemoteClaim {
    RemoteZone *zone;
    ngx_str_t key; /* the text */
    Source source;
    uint32_t own; /* told: the key's own limit, or LIMIT_SLIDING_OWN_* */
    Verdict verdict;
    uint64_t taken_ms; /* as Redis tells it, if it was taken */
    uint64_t taken_of; /* the value before, of a bucket */
};

} // namespace limit_sliding

#endif
