/*
 * Copyright (C) the limit_sliding authors
 */

/* Nodes of a cluster, and which of them has which slot. */

#ifndef LIMIT_SLIDING_REDIS_CLUSTER_HPP
#define LIMIT_SLIDING_REDIS_CLUSTER_HPP

#include "redis/logic/lease.hpp"
#include "redis/logic/remote.hpp"
#include "redis/topology.hpp"

namespace limit_sliding {

/* So many in a row, and a node is asked by one request at a time. */
constexpr auto kFailuresMax = kBreakerFailures;

/* A worker's view of a cluster. */
struct Cluster {
    Nodes *owner;
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
ngx_int_t cluster_start(Nodes *nodes);
void cluster_exit(Cluster *cluster);
Node *cluster_node(Cluster *cluster, ngx_str_t *host, ngx_int_t port);
Node *cluster_any(Cluster *cluster);
void cluster_forget(Cluster *cluster, Node *but);

/* map */
void map_stale(Cluster *cluster, Node *hint);
void map_refresh(ngx_event_t *ev);
ngx_int_t map_greeting(Node *node);
void map_add(Node *node, int64_t first, int64_t last, ngx_str_t *host,
             int64_t port);

} // namespace limit_sliding

#endif
