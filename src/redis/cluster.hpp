
/*
 * Copyright (C) the limit_sliding authors
 */

/* Nodes of a cluster, and which of them has which slot. */

#ifndef LIMIT_SLIDING_REDIS_CLUSTER_HPP
#define LIMIT_SLIDING_REDIS_CLUSTER_HPP

#include "ngx/ngx.hpp"
#include "redis/node.hpp"

namespace limit_sliding {

/* So many in a row, and a node is asked by one request at a time. */

constexpr auto kFailuresMax = kBreakerFailures;

/* A worker's view of a cluster. */

struct Cluster {
    ngx_queue_t nodes;
    ngx_uint_t nnodes;
    ngx_event_t refresh; /* posted */
    Node *hint;          /* whom to ask best */
    Node *asked;         /* for the map; or NULL */
    ngx_msec_t asked_at;
    ngx_uint_t ranges; /* of the map told so far */
    unsigned loaded : 1;
    unsigned stale : 1;

    Node *slots[kClusterSlots];
};

/* cluster */
ngx_int_t cluster_start(Redis *redis);
void cluster_exit(Redis *redis);
Node *cluster_node(Redis *redis, ngx_str_t *host, ngx_int_t port);
Node *route(Redis *redis, ngx_int_t slot);
Node *cluster_any(Cluster *cluster);
ngx_uint_t is_worth(Redis *redis, ngx_int_t slot);
ngx_msec_t cluster_retry(Redis *redis);
ngx_uint_t cluster_is_alive(Node *but);
void cluster_forget(Cluster *cluster, Node *but);

/* map */
void map_stale(Redis *redis, Node *hint);
void map_refresh(ngx_event_t *ev);
ngx_int_t map_greeting(Node *node);
void map_add(Node *node, int64_t first, int64_t last, ngx_str_t *host,
             int64_t port);

/* redirect */
ngx_int_t redirect_call(Node *node, Call *call, Reply *reply);
ngx_uint_t redirect_due(Ask *ask, Node *node);
ngx_int_t call_asking(Node *node);

/* split */
ngx_int_t ask_across_slots(Redis *redis, Ask *ask, Claim *claims,
                           Waiter *waiter);

void split_leave(Waiter *waiter);

} // namespace limit_sliding

#endif
