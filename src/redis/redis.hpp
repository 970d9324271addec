/*
 * Copyright (C) the limit_sliding authors
 */

/* A limit_sliding_redis block, and what a worker has of it. */

#ifndef LIMIT_SLIDING_REDIS_REDIS_HPP
#define LIMIT_SLIDING_REDIS_REDIS_HPP

#include "redis/call_counters.hpp"
#include "redis/remote_zone.hpp"
#include "redis/settings.hpp"
#include "redis/topology.hpp"

namespace limit_sliding {

constexpr auto kCallCounters = 64;

/* What the workers of all cycles share about a Redis. */
struct RedisShared {
    CallCounters traffic[kCallCounters];
    Breaker breaker;
};

/* This worker's part. */
struct Client {
    Nodes nodes;
    CallCounters *traffic;
    ngx_rbtree_t asks; /* by what is claimed */
    ngx_rbtree_node_t sentinel;
    ngx_queue_t waiting;  /* waiters, in order of their deadlines */
    ngx_event_t deadline; /* timer */
    ngx_event_t look;     /* timer: at the breaker */
    ngx_msec_t failed;    /* last time */
};

struct Redis {
    Settings settings;

    ngx_uint_t algorithms; /* mask */
    ngx_str_t script;
    ngx_str_t script_sha1; /* in hex */

    Policy probe_policy;
    RemoteZone probe_zone;

    ngx_pool_t *pool; /* of the configuration */
    ngx_shm_zone_t *shm_zone;
    RedisShared *shared;

    Client client;
};

/* client */
ngx_int_t redis_start(Redis *redis);
void redis_succeeded(Node &node);
void redis_failed(Node &node);

} // namespace limit_sliding

#endif
