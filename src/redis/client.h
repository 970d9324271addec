
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


#ifndef _NGX_HTTP_LIMIT_SLIDING_REDIS_H_INCLUDED_
#define _NGX_HTTP_LIMIT_SLIDING_REDIS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_event_connect.h>

#include "redis/logic/lease.h"
#include "core/limiter.h"
#include "redis/logic/remote.h"
#include "core/stats.h"


/* Limits of one stage of a place, so that their asks fit into calls. */

#define NGX_HTTP_LIMIT_SLIDING_CLAIMS   32

typedef struct ngx_http_limit_sliding_redis_s  ngx_http_limit_sliding_redis_t;
typedef struct ngx_http_limit_sliding_node_s   ngx_http_limit_sliding_node_t;
typedef struct ngx_http_limit_sliding_cluster_s
                                             ngx_http_limit_sliding_cluster_t;
typedef struct ngx_http_limit_sliding_ask_s    ngx_http_limit_sliding_ask_t;
typedef struct ngx_http_limit_sliding_split_s  ngx_http_limit_sliding_split_t;
typedef struct ngx_http_limit_sliding_waiter_s
                                             ngx_http_limit_sliding_waiter_t;


typedef enum {
    NGX_HTTP_LIMIT_SLIDING_STANDALONE = 0,
    NGX_HTTP_LIMIT_SLIDING_SENTINEL,
    NGX_HTTP_LIMIT_SLIDING_CLUSTER
} ngx_http_limit_sliding_topology_e;


typedef enum {
    NGX_HTTP_LIMIT_SLIDING_ON_ERROR_LOCAL = 0,
    NGX_HTTP_LIMIT_SLIDING_ON_ERROR_ALLOW,
    NGX_HTTP_LIMIT_SLIDING_ON_ERROR_DENY
} ngx_http_limit_sliding_on_error_e;


typedef enum {
    NGX_HTTP_LIMIT_SLIDING_KEY_DIGEST = 0,     /* SHA-1, in hex */
    NGX_HTTP_LIMIT_SLIDING_KEY_PLAIN
} ngx_http_limit_sliding_key_format_e;


/* A "server" of the block. */

typedef struct {
    ngx_str_t                            text;     /* as written */
    ngx_url_t                            url;      /* without an address: not
                                                      resolved (yet) */
    u_char                              *file;     /* where it is written */
    ngx_uint_t                           line;
} ngx_http_limit_sliding_server_t;


/* The last one has no bound. */

#define NGX_HTTP_LIMIT_SLIDING_NLATENCIES  12

/* What a worker counts of its calls. */

typedef struct {
    ngx_atomic_t                         failed;
    ngx_atomic_t                         opened;   /* the breaker */
    ngx_atomic_t                         sum_us;
    ngx_atomic_t                         leased;   /* requests, in advance */
    ngx_atomic_t                         latencies[
                                            NGX_HTTP_LIMIT_SLIDING_NLATENCIES];
} ngx_http_limit_sliding_traffic_t;


/* What the workers of all cycles share about a Redis. */

#define NGX_HTTP_LIMIT_SLIDING_NTRAFFIC  64

typedef struct {
    ngx_http_limit_sliding_traffic_t     traffic[
                                              NGX_HTTP_LIMIT_SLIDING_NTRAFFIC];
    limit_sliding_breaker_t              breaker;
} ngx_http_limit_sliding_shared_t;


/* A zone as its Redis sees it. */

typedef struct {
    ngx_http_limit_sliding_redis_t      *redis;
    ngx_str_t                            prefix;   /* of keys, to the brace */
    ngx_str_t                            name;
    limit_sliding_refusals_t            *refusals; /* in the zone's memory */
    limit_sliding_leases_t              *leases;   /* this, too; NULL: none */
    limit_sliding_limit_cache_t         *told;     /* this, too: limits of
                                                      keys; NULL: a probe's */
    uint32_t                             lease;    /* their size */
    ngx_atomic_t                        *log_after; /* this, too: bad limits of
                                                      keys */
} ngx_http_limit_sliding_remote_zone_t;


/* A limit_sliding_redis block. */

struct ngx_http_limit_sliding_redis_s {
    ngx_str_t                            name;
    ngx_array_t                          servers;
    ngx_uint_t                           topology;
    ngx_str_t                            sentinel_master;
    ngx_str_t                            sentinel_user;
    ngx_str_t                            sentinel_password;
    ngx_str_t                            user;
    ngx_str_t                            password;
    ngx_uint_t                           database;
    ngx_msec_t                           connect_timeout;
    ngx_msec_t                           timeout;
    ngx_uint_t                           on_error;
    ngx_str_t                            key_prefix;
    ngx_uint_t                           key_format;

    ngx_flag_t                           ssl;
    ngx_flag_t                           ssl_verify;
    ngx_str_t                            ssl_name;
    ngx_str_t                            ssl_trusted_certificate;
    ngx_str_t                            ssl_certificate;
    ngx_str_t                            ssl_certificate_key;
    void                                *ssl_ctx;  /* ngx_ssl_t */

    ngx_uint_t                           algorithms;   /* mask */
    ngx_str_t                            script;
    ngx_str_t                            script_sha1;  /* in hex */

    ngx_resolver_t                      *resolver; /* NULL: names are looked
                                                      up at start */

    limit_sliding_policy_t               probe_policy;
    ngx_http_limit_sliding_remote_zone_t
                                         probe_zone;

    ngx_uint_t                           defined;
    u_char                              *file;     /* of the first mention */
    ngx_uint_t                           line;

    ngx_pool_t                          *pool;     /* of the configuration */
    ngx_shm_zone_t                      *shm_zone;
    ngx_http_limit_sliding_shared_t     *shared;

    /* this worker's */
    ngx_http_limit_sliding_traffic_t    *traffic;
    ngx_http_limit_sliding_node_t       *node;     /* NULL in a cluster */
    ngx_http_limit_sliding_node_t       *watch;    /* NULL: no sentinels */
    ngx_msec_t                           watched;  /* last time */
    ngx_http_limit_sliding_cluster_t    *cluster;  /* NULL if it is none */
    ngx_rbtree_t                         asks;     /* by what is claimed */
    ngx_rbtree_node_t                    sentinel;
    ngx_queue_t                          waiting;  /* waiters, in order of
                                                      their deadlines */
    ngx_event_t                          deadline; /* timer */
    ngx_event_t                          look;     /* timer: at the breaker */
    ngx_msec_t                           failed;   /* last time */
    ngx_msec_t                           log_after;
    ngx_uint_t                           log_omitted;
};


typedef enum {
    NGX_HTTP_LIMIT_SLIDING_LOCAL = 0,
    NGX_HTTP_LIMIT_SLIDING_REDIS,
    NGX_HTTP_LIMIT_SLIDING_LEASE,
    NGX_HTTP_LIMIT_SLIDING_CACHE,
    NGX_HTTP_LIMIT_SLIDING_FALLBACK
} ngx_http_limit_sliding_source_e;


/* A claim of a zone in Redis: what to ask, and what was told. */

typedef struct {
    ngx_http_limit_sliding_remote_zone_t
                                        *zone;
    ngx_str_t                            key;      /* the text */
    ngx_http_limit_sliding_source_e      source;
    uint32_t                             own;      /* told: the key's own
                                                      limit, or
                                                      LIMIT_SLIDING_OWN_* */
    limit_sliding_verdict_t              verdict;
    uint64_t                             taken_ms; /* as Redis tells it, if it
                                                      was taken */
    uint64_t                             taken_of; /* the value before, of a
                                                      bucket */
} ngx_http_limit_sliding_remote_t;


typedef enum {
    NGX_HTTP_LIMIT_SLIDING_FAILED = 0,
    NGX_HTTP_LIMIT_SLIDING_TOLD                /* claims have their outcomes */
} ngx_http_limit_sliding_told_e;


/* Who waits for an ask: a request.  Memory and claims are its own. */

struct ngx_http_limit_sliding_waiter_s {
    ngx_queue_t                          queue;    /* of the ask */
    ngx_queue_t                          waiting;  /* of the Redis */
    ngx_http_limit_sliding_ask_t        *ask;      /* NULL: waits no more */
    ngx_http_limit_sliding_split_t      *split;    /* waits for several asks;
                                                      NULL: does not */
    ngx_msec_t                           until;
    ngx_uint_t                           turn;     /* of the ask's units */
    unsigned                             asked:1;  /* by a call under way */

    limit_sliding_claim_t               *claims;   /* as many as the ask's */
    ngx_http_limit_sliding_told_e        told;
    ngx_uint_t                           admitted;

    ngx_event_t                          event;    /* posted once told */
};


/* What an administrator orders of one key. */

typedef enum {
    NGX_HTTP_LIMIT_SLIDING_NO_ORDER = 0,
    NGX_HTTP_LIMIT_SLIDING_FORGET,
    NGX_HTTP_LIMIT_SLIDING_SET_LIMIT,
    NGX_HTTP_LIMIT_SLIDING_UNSET_LIMIT
} ngx_http_limit_sliding_order_e;


extern ngx_uint_t  ngx_http_limit_sliding_has_redis;

/* Upper bounds, but for the last one. */
extern uint32_t  ngx_http_limit_sliding_latencies_us[];

/* By ngx_http_limit_sliding_topology_e and ngx_http_limit_sliding_on_error_e;
 * an empty one ends them. */
extern ngx_str_t  ngx_http_limit_sliding_topology_words[];
extern ngx_str_t  ngx_http_limit_sliding_on_error_words[];

/* block */
char *ngx_http_limit_sliding_redis_block(ngx_conf_t *cf,
    ngx_http_limit_sliding_redis_t *redis);
ngx_int_t ngx_http_limit_sliding_redis_init(ngx_conf_t *cf,
    ngx_http_limit_sliding_redis_t *redis, ngx_resolver_t *resolver);

/* A worker begins, and ends. */
void ngx_http_limit_sliding_redis_enter(
    ngx_http_limit_sliding_redis_t *redis);
void ngx_http_limit_sliding_redis_exit(
    ngx_http_limit_sliding_redis_t *redis);

/*
 * Asks for all of the claims or none, once they are not refused as they are
 * known to be.  NGX_OK: the waiter, if there is one, will be told;
 * NGX_DECLINED: Redis is known not to answer.  Claims of one Redis, 1 to
 * NGX_HTTP_LIMIT_SLIDING_CLAIMS, each with its ngx_http_limit_sliding_remote_t.
 */
ngx_int_t ngx_http_limit_sliding_ask(ngx_http_limit_sliding_redis_t *redis,
    limit_sliding_claim_t *claims, ngx_uint_t nclaims,
    ngx_http_limit_sliding_waiter_t *waiter);

/*
 * Spends leased units for all of the claims, and returns 1, or for none, and
 * returns 0.  What was spent is either given back, or decides the claims.
 */
ngx_uint_t ngx_http_limit_sliding_lease(limit_sliding_claim_t *claims,
    ngx_uint_t nclaims);
void ngx_http_limit_sliding_lease_return(limit_sliding_claim_t *claims,
    ngx_uint_t nclaims);
void ngx_http_limit_sliding_lease_tell(limit_sliding_claim_t *claims,
    ngx_uint_t nclaims);

/* The request is gone; its charge stays.  Safe to call at any time. */
void ngx_http_limit_sliding_leave(ngx_http_limit_sliding_waiter_t *waiter);

/*
 * To be called once an ask for the key was told, as then Redis answers.
 * NGX_OK: the waiter will be told, `admitted` if it was done; NGX_DECLINED: it
 * cannot be sent.  `value` is that of a limit, a rate.
 */
ngx_int_t ngx_http_limit_sliding_order(limit_sliding_claim_t *claim,
    ngx_http_limit_sliding_order_e what, ngx_str_t *value,
    ngx_http_limit_sliding_waiter_t *waiter);

/* Adds up what all workers have counted. */
void ngx_http_limit_sliding_redis_traffic(
    ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_traffic_t *sum);


#endif /* _NGX_HTTP_LIMIT_SLIDING_REDIS_H_INCLUDED_ */
