/*
 * Copyright (C) the limit_sliding authors
 */

/* A Redis: how it is configured, what all workers share, and what this worker
 * has of it. */

#ifndef LIMIT_SLIDING_REDIS_REDIS_HPP
#define LIMIT_SLIDING_REDIS_REDIS_HPP

#include "redis/call_counters.hpp"
#include "redis/logic/breaker.hpp"
#include "redis/remote_claim.hpp"
#include "redis/settings.hpp"
#include "redis/topology.hpp"

namespace limit_sliding {

/* Of the workers of all cycles. */
struct RedisShared {
    AllCallCounters calls;
    Breaker breaker;
};

/* Of this worker. */
struct Client {
    Nodes nodes;
    CallCounters *calls;
    ngx_rbtree_t asks; /* by what is claimed */
    ngx_rbtree_node_t sentinel;
    WaitingList waiting;  /* in order of their deadlines */
    ngx_event_t deadline; /* timer */
    ngx_event_t look;     /* timer: at the breaker */
    ngx_msec_t failed;    /* when a call or connection did last */
};

struct Redis {
    Settings settings;

    ngx_uint_t algorithms; /* of its zones: a mask of 1 << Algorithm */
    ngx_str_t script;
    ngx_str_t script_sha1; /* in hex */

    Policy probe_policy;
    RemoteZone probe_zone;

    ngx_pool_t *pool; /* of the configuration */
    ngx_shm_zone_t *shm_zone;
    RedisShared *shared; /* nullptr: no zone uses it */

    Client client;
};

/* The node has answered a call. */
void node_answered(Node &node);

/* The node has not answered, or with an error that is no verdict. */
void node_failed(Node &node);

} // namespace limit_sliding

#endif
