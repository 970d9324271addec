/* Copyright (C) the limit_sliding authors */

/* A Redis: its configuration, the part that all workers share, and the part of this worker. */

#pragma once

#include "core/base/histogram.hpp"
#include "core/base/timeline.hpp"
#include "core/holds/ledger.hpp"
#include "redis/errands/remote_claim.hpp"
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
    uint64_t failed;                   /* calls and attempts to connect that failed */
    uint64_t opened;                   /* openings of the breaker */
    uint64_t leased;                   /* requests that units were leased for */
    uint64_t unsettled;                /* units that Redis has not taken */
    uint64_t clock_steps;              /* times that Redis's clock was set back */
    uint64_t foreign;                  /* asks about states of another version of the module */
    uint64_t uncounted;                /* units in flight that Redis has not counted for a while */
    uint64_t graces;                   /* graces, in which Redis grants no units in flight */
    uint64_t grace_decisions;          /* decisions by on_error because of a grace */
    Histogram<kLatenciesUs> latencies; /* times of calls of the script with a valid reply */
};

using AllCallCounters = CallCounters[64];

using RedisTimeline = Timeline<2>;

/* The sums of the memory of all masters. */
struct ServerMemory {
    uint64_t bytes;
    uint64_t max_bytes; /* 0: a master has no maximum */
    uint64_t evicted;   /* keys that were evicted for others */
};

/* The last sums, for all workers, see server_memory.hpp.  Times are in ms of ngx_current_msec. */
struct SharedMemoryReport {
    ServerMemory memory;
    uint64_t at_ms;  /* time of the sums; 0: there are none */
    uint64_t due_ms; /* time from which a worker must ask again */
};

/* The workers of all cycles share this. */
struct RedisShared {
    AllCallCounters calls;
    RedisTimeline timeline;
    Breaker breaker;
    KnownAddresses addresses;
    SharedMemoryReport memory;
    ngx_atomic_t clock_told;          /* ms until which no further clock step is logged */
    ngx_atomic_t grace_told;          /* ms until which no further grace is logged */
    uint64_t grace;                   /* 2 x the ms when the present grace was noticed, plus 1 if
                                         the log has told of it; 0: there is no grace */
    uint64_t holders[Ledger::kSeats]; /* id of the UnitHolder of each seat; 0: none */
};

/* The asks of this worker that no request waits for. */
struct Settling {
    size_t bytes;      /* memory of settlements */
    uint64_t units;    /* units of settlements */
    size_t nasks;      /* all asks that an exiting worker waits for, see keep_worker() */
    ngx_event_t timer; /* keeps an exiting worker until these asks end */
    ngx_msec_t until;  /* ms from which on an exiting worker does not wait for them */
};

struct Client;
struct UnitHolder;
struct MemoryErrand;

/* The reports of this worker for zones with "sync=". */
struct Notices {
    ngx_queue_t list;
    size_t bytes; /* memory of the notices */

    /* These are nullptr until there was a notice.  The client calls hurry() when the worker has
     * been told to exit, and end() when it exits. */
    void (*hurry)(Client &client);
    void (*end)(Client &client);
};

/* This worker's part of a Redis. */
struct Client {
    Nodes nodes;
    CallCounters *calls;
    ngx_rbtree_t asks; /* shared asks by the hash of their claims */
    ngx_rbtree_node_t sentinel;
    WaitingList joined;         /* waiters of this turn of the event loop */
    WaitingList waiting;        /* the other waiters, in order of their deadlines */
    ngx_event_t deadline;       /* timer for the first of these deadlines */
    Grace grace;                /* of the first deadline */
    ErrandList patient;         /* patient errands that wait for the end of others */
    size_t npatient;            /* patient errands under way */
    ErrandList unrouted;        /* errands that wait for a map of slots */
    ngx_event_t unrouted_timer; /* ends the wait of the first of these errands */
    ngx_event_t look;           /* timer for the next look at the breaker */
    ngx_uint_t probes;          /* number of probes sent to a cluster */
    ngx_msec_t failed;          /* ms of the last failure of a call or connection */
    Settling settling;
    Notices notices;
    MemoryErrand *memory; /* nullptr until the memory of the servers was asked for */
    UnitHolder *holder;   /* this worker in zones with inflight=; nullptr: not yet */
    size_t seat;          /* of this worker, if there are zones with inflight= */
};

struct Redis {
    Settings settings;

    /* The script depends on these fields. */
    ngx_uint_t algorithms; /* mask of 1 << Algorithm of the zones */
    bool settles;          /* zones settle costs, or take them back */
    bool syncs;            /* zones have "sync=" */
    bool gives_back;       /* locations also have limits of another Redis */
    bool records;          /* locations record rejected requests */
    ngx_str_t script;
    ngx_str_t script_sha1; /* digest of the script in hex */
    ngx_str_t bans_sha1;   /* digests in hex of bans_script(), heartbeat_script(), hold_script() */
    ngx_str_t heartbeat_sha1;
    ngx_str_t hold_sha1;

    Policy probe_policy;
    RemoteZone probe_zone;

    ngx_pool_t *pool; /* pool of the configuration */
    ngx_shm_zone_t *shm_zone;
    RedisShared *shared; /* nullptr: no zone uses the Redis */

    Client client;
};

/* Returns true if the Redis is known not to answer. */
inline bool is_away(const Redis &redis) {
    return redis.shared->breaker.is_open() || redis.client.nodes.is_away();
}

} // namespace limit_sliding
