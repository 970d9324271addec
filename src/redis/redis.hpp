/* Copyright (C) the limit_sliding authors */

/* A Redis: how it is configured, what all workers share, and what this worker
 * has of it. */

#pragma once

#include "core/histogram.hpp"
#include "redis/logic/breaker.hpp"
#include "redis/remote_claim.hpp"
#include "redis/settings.hpp"
#include "redis/topology.hpp"

namespace limit_sliding {

/* Upper bounds of the times of calls, in microseconds. */
inline constexpr uint32_t kLatenciesUs[]
    = {250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000};

/* Counters of one worker, or of the few whose numbers are equal modulo 64. */
struct CallCounters {
    ngx_atomic_t failed;
    ngx_atomic_t opened;               /* the breaker */
    ngx_atomic_t leased;               /* requests, in advance */
    ngx_atomic_t unsettled;            /* units */
    Histogram<kLatenciesUs> latencies; /* of calls that were answered */
};

using AllCallCounters = CallCounters[64];

/* Adds up what all workers have counted. */
inline CallCounters sum_of(const AllCallCounters &workers) {
    CallCounters sum{};
    for (const CallCounters &worker : workers) {
        sum.failed += worker.failed;
        sum.opened += worker.opened;
        sum.leased += worker.leased;
        sum.unsettled += worker.unsettled;
        sum.latencies.add(worker.latencies);
    }
    return sum;
}

/* What the masters tell of their memory, summed up. */
struct ServerMemory {
    uint64_t bytes;
    uint64_t max_bytes; /* 0: one of them has no maximum */
    uint64_t evicted;   /* keys that were given up for others */
};

/* The same for all workers, see server_memory.hpp.  The times are those of
 * ngx_current_msec. */
struct SharedMemoryReport {
    ServerMemory memory;
    uint64_t told_ms; /* 0: it was not told */
    uint64_t due_ms;  /* when to ask again */
};

/* The workers of all cycles share this. */
struct RedisShared {
    AllCallCounters calls;
    Breaker breaker;
    SharedMemoryReport memory;
};

/* The settlements of this worker. */
struct Settling {
    ngx_queue_t waiting; /* those that are not due yet */
    size_t nout;         /* how many are due, or in calls */
    size_t nasks;        /* how many there are, with those that wait */
    uint64_t units;      /* of all of them */
    ngx_event_t timer;   /* keeps an exiting worker until they are over, */
    ngx_msec_t until;    /* or until then */
};

struct Client;
struct MemoryErrand;

/* What this worker is to tell Redis of zones with "sync=". */
struct Notices {
    ngx_queue_t list;
    size_t n;

    /* These are nullptr until there was a notice.  The client calls them when the
     * worker is to exit, and when it does. */
    void (*hurry)(Client &client);
    void (*end)(Client &client);
};

/* This worker's part of a Redis. */
struct Client {
    Nodes nodes;
    CallCounters *calls;
    ngx_rbtree_t asks; /* by what is claimed */
    ngx_rbtree_node_t sentinel;
    WaitingList waiting;  /* in order of their deadlines */
    ngx_event_t deadline; /* timer */
    ngx_event_t look;     /* timer: at the breaker */
    ngx_uint_t probes;    /* sent to a cluster */
    ngx_msec_t failed;    /* when a call or connection did last */
    Settling settling;
    Notices notices;
    MemoryErrand *memory; /* nullptr: it has not asked yet */
};

struct Redis {
    Settings settings;

    ngx_uint_t algorithms; /* of its zones: a mask of 1 << Algorithm */
    bool settles;          /* costs of some, or takes back; set before the script is made, */
    bool gives_back;       /* as this is: places have limits of others as well, */
    bool records;          /* and this: what some reject */
    ngx_str_t script;
    ngx_str_t script_sha1; /* in hex */
    ngx_str_t bans_sha1;   /* of bans_script() */

    Policy probe_policy;
    RemoteZone probe_zone;

    ngx_pool_t *pool; /* of the configuration */
    ngx_shm_zone_t *shm_zone;
    RedisShared *shared; /* nullptr: no zone uses it */

    Client client;
};

/* Returns true if this worker's part of the Redis, which is ready, is not to be
 * asked: it is known not to answer. */
inline bool is_away(const Redis &redis) {
    return redis.shared->breaker.is_open() || redis.client.nodes.is_away();
}

} // namespace limit_sliding
