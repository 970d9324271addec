/* Copyright (C) the limit_sliding authors */

/* A Redis: its configuration, the part that all workers share, and the part of this
 * worker. */

#pragma once

#include "core/base/histogram.hpp"
#include "redis/calls/remote_claim.hpp"
#include "redis/shared/breaker.hpp"
#include "redis/topology/topology.hpp"
#include "redis/wire/known_addresses.hpp"
#include "redis/wire/settings.hpp"

namespace limit_sliding {

/* Upper bounds of the times of calls, in microseconds. */
inline constexpr uint32_t kLatenciesUs[]
    = {250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000};

/* Counters of one worker, or of the few with equal numbers modulo 64. */
struct CallCounters {
    uint64_t failed;
    uint64_t opened;                   /* the breaker */
    uint64_t leased;                   /* requests, in advance */
    uint64_t unsettled;                /* units */
    Histogram<kLatenciesUs> latencies; /* of calls that were answered */
};

using AllCallCounters = CallCounters[64];

/* The memory of the masters, summed up. */
struct ServerMemory {
    uint64_t bytes;
    uint64_t max_bytes; /* 0: one of them has no maximum */
    uint64_t evicted;   /* keys that were evicted for others */
};

/* The same for all workers, see server_memory.hpp.  The times are on the scale
 * of ngx_current_msec. */
struct SharedMemoryReport {
    ServerMemory memory;
    uint64_t told_ms; /* 0: it was not told */
    uint64_t due_ms;  /* when to ask again */
};

/* The workers of all cycles share this. */
struct RedisShared {
    AllCallCounters calls;
    Breaker breaker;
    KnownAddresses addresses;
    SharedMemoryReport memory;
};

/* The settlements of this worker. */
struct Settling {
    ngx_queue_t waiting; /* settlements that are not due yet */
    size_t nout;         /* how many are due, or in calls */
    size_t nasks;        /* number of settlements, with the waiting ones, */
    size_t bytes;        /* and their memory */
    uint64_t units;      /* of all of them */
    ngx_event_t timer;   /* keeps an exiting worker until they are over, */
    ngx_msec_t until;    /* or until then */
};

struct Client;
struct MemoryErrand;

/* The reports of this worker for zones with "sync=". */
struct Notices {
    ngx_queue_t list;
    size_t bytes; /* of memory, with their asks' bytes */

    /* These are nullptr until there was a notice.  The client calls them when the
     * worker is to exit, and when it does. */
    void (*hurry)(Client &client);
    void (*end)(Client &client);
};

/* This worker's part of a Redis. */
struct Client {
    Nodes nodes;
    CallCounters *calls;
    ngx_rbtree_t asks; /* by the hash of their claims */
    ngx_rbtree_node_t sentinel;
    WaitingList joined;   /* waiters since this turn of the event loop */
    WaitingList waiting;  /* the others, in order of their deadlines */
    ngx_event_t deadline; /* timer */
    Grace grace;
    ngx_event_t look;  /* timer: at the breaker */
    ngx_uint_t probes; /* sent to a cluster */
    ngx_msec_t failed; /* when a call or connection did last */
    Settling settling;
    Notices notices;
    MemoryErrand *memory; /* nullptr: it has not asked yet */
};

struct Redis {
    Settings settings;

    ngx_uint_t algorithms; /* of its zones: a mask of 1 << Algorithm */
    bool settles;          /* costs of some, or takes back; set before the script is made, */
    bool gives_back;       /* as this is: places have limits of others as well, */
    bool records;          /* and this: rejected requests of some places */
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
