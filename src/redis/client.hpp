
/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * Limits that Redis decides.
 *
 * A request's claims become an "ask": all or nothing, and the same for all
 * requests of this worker that claim the same meanwhile.  Asks that are due in
 * one turn of the event loop leave in one "call", a command of the script.
 * Calls are pipelined over a "node", the connection of this worker to a server.
 */

#ifndef LIMIT_SLIDING_REDIS_CLIENT_HPP
#define LIMIT_SLIDING_REDIS_CLIENT_HPP

#include "core/limiter.hpp"
#include "core/stats.hpp"
#include "ngx/ngx.hpp"
#include "redis/logic/lease.hpp"
#include "redis/logic/remote.hpp"

namespace limit_sliding {

/* Limits of one stage of a place, so that their asks fit into calls. */

constexpr auto kClaimsMax = 32;

struct Redis;
struct Node;
struct Cluster;
struct Ask;
struct CrossSlot;
struct Waiter;

enum class Topology : ngx_uint_t {
    kStandalone = 0,
    kSentinel,
    kCluster,
    kUnset = NGX_CONF_UNSET_UINT
};

enum class OnError : ngx_uint_t {
    kLocal = 0,
    kAllow,
    kDeny,
    kUnset = NGX_CONF_UNSET_UINT
};

enum class KeyFormat : ngx_uint_t {
    kDigest = 0, /* SHA-1, in hex */
    kPlain,
    kUnset = NGX_CONF_UNSET_UINT
};

/* A "server" of the block. */

struct Server {
    ngx_str_t text; /* as written */
    ngx_url_t url;  /* without an address: not
                                                      resolved (yet) */
    u_char *file;   /* where it is written */
    ngx_uint_t line;
};

/* The last one has no bound. */

constexpr auto kLatencies = 12;

/* What a worker counts of its calls. */

struct CallCounters {
    ngx_atomic_t failed;
    ngx_atomic_t opened; /* the breaker */
    ngx_atomic_t sum_us;
    ngx_atomic_t leased; /* requests, in advance */
    ngx_atomic_t latencies[kLatencies];
};

/* What the workers of all cycles share about a Redis. */

constexpr auto kCallCounters = 64;

struct RedisShared {
    CallCounters traffic[kCallCounters];
    Breaker breaker;
};

/* A zone as its Redis sees it. */

struct RemoteZone {
    Redis *redis;
    ngx_str_t prefix; /* of keys, to the brace */
    ngx_str_t name;
    Refusals *refusals;      /* in the zone's memory */
    Leases *leases;          /* this, too; NULL: none */
    LimitCache *told;        /* this, too: limits of
                                                      keys; NULL: a probe's */
    uint32_t lease;          /* their size */
    ngx_atomic_t *log_after; /* this, too: bad limits of
                                                      keys */
};

/* A limit_sliding_redis block. */

struct Redis {
    ngx_str_t name;
    ngx_array_t servers;
    Topology topology;
    ngx_str_t sentinel_master;
    ngx_str_t sentinel_user;
    ngx_str_t sentinel_password;
    ngx_str_t user;
    ngx_str_t password;
    ngx_uint_t database;
    ngx_msec_t connect_timeout;
    ngx_msec_t timeout;
    OnError on_error;
    ngx_str_t key_prefix;
    KeyFormat key_format;

    ngx_flag_t ssl;
    ngx_flag_t ssl_verify;
    ngx_str_t ssl_name;
    ngx_str_t ssl_trusted_certificate;
    ngx_str_t ssl_certificate;
    ngx_str_t ssl_certificate_key;
    void *ssl_ctx; /* ngx_ssl_t */

    ngx_uint_t algorithms; /* mask */
    ngx_str_t script;
    ngx_str_t script_sha1; /* in hex */

    ngx_resolver_t *resolver; /* NULL: names are looked
                                                      up at start */

    Policy probe_policy;
    RemoteZone probe_zone;

    ngx_uint_t defined;
    u_char *file; /* of the first mention */
    ngx_uint_t line;

    ngx_pool_t *pool; /* of the configuration */
    ngx_shm_zone_t *shm_zone;
    RedisShared *shared;

    /* this worker's */
    CallCounters *traffic;
    Node *node;         /* NULL in a cluster */
    Node *watch;        /* NULL: no sentinels */
    ngx_msec_t watched; /* last time */
    Cluster *cluster;   /* NULL if it is none */
    ngx_rbtree_t asks;  /* by what is claimed */
    ngx_rbtree_node_t sentinel;
    ngx_queue_t waiting;  /* waiters, in order of
                                                      their deadlines */
    ngx_event_t deadline; /* timer */
    ngx_event_t look;     /* timer: at the breaker */
    ngx_msec_t failed;    /* last time */
    ngx_msec_t log_after;
    ngx_uint_t log_omitted;
};

enum class Source { kLocal = 0, kRedis, kLease, kCache, kFallback };

/* A claim of a zone in Redis: what to ask, and what was told. */

struct RemoteClaim {
    RemoteZone *zone;
    ngx_str_t key; /* the text */
    Source source;
    uint32_t own; /* told: the key's own
                                                      limit, or
                                                      LIMIT_SLIDING_OWN_* */
    Verdict verdict;
    uint64_t taken_ms; /* as Redis tells it, if it
                                                      was taken */
    uint64_t taken_of; /* the value before, of a
                                                      bucket */
};

enum class Told {
    kFailed = 0,
    kTold /* claims have their outcomes */
};

/* Who waits for an ask: a request.  Memory and claims are its own. */

struct Waiter {
    ngx_queue_t queue;   /* of the ask */
    ngx_queue_t waiting; /* of the Redis */
    Ask *ask;            /* NULL: waits no more */
    CrossSlot *split;    /* waits for several asks;
                                                      NULL: does not */
    ngx_msec_t until;
    ngx_uint_t turn;    /* of the ask's units */
    unsigned asked : 1; /* by a call under way */

    Claim *claims; /* as many as the ask's */
    Told told;
    ngx_uint_t admitted;

    ngx_event_t event; /* posted once told */
};

/* What an administrator orders of one key. */

enum class KeyCommand { kNone = 0, kForget, kSetLimit, kUnsetLimit };

extern ngx_uint_t has_redis;

/* Upper bounds, but for the last one. */
extern uint32_t latencies_us[];

/* By Topology and OnError;
 * an empty one ends them. */
extern ngx_str_t topology_words[];
extern ngx_str_t on_error_words[];

/* block */
char *redis_block(ngx_conf_t *cf, Redis *redis);
ngx_int_t redis_init(ngx_conf_t *cf, Redis *redis, ngx_resolver_t *resolver);

/* A worker begins, and ends. */
void redis_enter(Redis *redis);
void redis_exit(Redis *redis);

/*
 * Asks for all of the claims or none, once they are not refused as they are
 * known to be.  NGX_OK: the waiter, if there is one, will be told;
 * NGX_DECLINED: Redis is known not to answer.  Claims of one Redis, 1 to
 * kClaimsMax, each with its RemoteClaim.
 */
ngx_int_t ask_redis(Redis *redis, Claim *claims, ngx_uint_t nclaims,
                    Waiter *waiter);

/*
 * Spends leased units for all of the claims, and returns 1, or for none, and
 * returns 0.  What was spent is either given back, or decides the claims.
 */
ngx_uint_t spend_leases(Claim *claims, ngx_uint_t nclaims);
void return_leases(Claim *claims, ngx_uint_t nclaims);
void describe_leases(Claim *claims, ngx_uint_t nclaims);

/* The request is gone; its charge stays.  Safe to call at any time. */
void leave_ask(Waiter *waiter);

/*
 * To be called once an ask for the key was told, as then Redis answers.
 * NGX_OK: the waiter will be told, `admitted` if it was done; NGX_DECLINED: it
 * cannot be sent.  `value` is that of a limit, a rate.
 */
ngx_int_t send_key_command(Claim *claim, KeyCommand what, ngx_str_t *value,
                           Waiter *waiter);

/* Adds up what all workers have counted. */
void redis_traffic(Redis *redis, CallCounters *sum);

} // namespace limit_sliding

#endif
