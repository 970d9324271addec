/*
 * Copyright (C) the limit_sliding authors
 */

/* A zone as its Redis sees it. */

#ifndef LIMIT_SLIDING_REDIS_REMOTE_ZONE_HPP
#define LIMIT_SLIDING_REDIS_REMOTE_ZONE_HPP

#include "core/limiter.hpp"
#include "core/stats.hpp"
#include "ngx/ngx.hpp"
#include "redis/logic/lease.hpp"
#include "redis/logic/remote.hpp"

namespace limit_sliding {

struct Redis;

struct RemoteZone {
    Redis *redis;
    ngx_str_t prefix; /* of keys, to the brace */
    ngx_str_t name;
    Refusals *refusals;      /* in the zone's memory */
    Leases *leases;          /* this, too; NULL: none */
    LimitCache *told;        /* this, too: limits of keys; NULL: a probe's */
    uint32_t lease;          /* their size */
    ngx_atomic_t *log_after; /* this, too: bad limits of keys */
};

} // namespace limit_sliding

#endif
