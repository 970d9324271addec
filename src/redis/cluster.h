
/*
 * Copyright (C) the limit_sliding authors
 */


/* Nodes of a cluster, and which of them has which slot. */


#ifndef _NGX_HTTP_LIMIT_SLIDING_REDIS_CLUSTER_H_INCLUDED_
#define _NGX_HTTP_LIMIT_SLIDING_REDIS_CLUSTER_H_INCLUDED_


#include "redis/node.h"


/* So many in a row, and a node is asked by one request at a time. */

#define NGX_HTTP_LIMIT_SLIDING_FAILURES  LIMIT_SLIDING_BREAKER_FAILURES


/* A worker's view of a cluster. */

struct ngx_http_limit_sliding_cluster_s {
    ngx_queue_t                          nodes;
    ngx_uint_t                           nnodes;
    ngx_event_t                          refresh;  /* posted */
    ngx_http_limit_sliding_node_t       *hint;     /* whom to ask best */
    ngx_http_limit_sliding_node_t       *asked;    /* for the map; or NULL */
    ngx_msec_t                           asked_at;
    ngx_uint_t                           ranges;   /* of the map told so far */
    unsigned                             loaded:1;
    unsigned                             stale:1;

    ngx_http_limit_sliding_node_t       *slots[LIMIT_SLIDING_CLUSTER_SLOTS];
};


/* cluster */
ngx_int_t ngx_http_limit_sliding_cluster_start(
    ngx_http_limit_sliding_redis_t *redis);
void ngx_http_limit_sliding_cluster_exit(
    ngx_http_limit_sliding_redis_t *redis);
ngx_http_limit_sliding_node_t *ngx_http_limit_sliding_cluster_node(
    ngx_http_limit_sliding_redis_t *redis, ngx_str_t *host, ngx_int_t port);
ngx_http_limit_sliding_node_t *ngx_http_limit_sliding_route(
    ngx_http_limit_sliding_redis_t *redis, ngx_int_t slot);
ngx_http_limit_sliding_node_t *ngx_http_limit_sliding_cluster_any(
    ngx_http_limit_sliding_cluster_t *cluster);
ngx_uint_t ngx_http_limit_sliding_is_worth(
    ngx_http_limit_sliding_redis_t *redis, ngx_int_t slot);
ngx_msec_t ngx_http_limit_sliding_cluster_retry(
    ngx_http_limit_sliding_redis_t *redis);
ngx_uint_t ngx_http_limit_sliding_cluster_is_alive(
    ngx_http_limit_sliding_node_t *but);
void ngx_http_limit_sliding_cluster_forget(
    ngx_http_limit_sliding_cluster_t *cluster,
    ngx_http_limit_sliding_node_t *but);

/* map */
void ngx_http_limit_sliding_map_stale(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_node_t *hint);
void ngx_http_limit_sliding_map_refresh(ngx_event_t *ev);
ngx_int_t ngx_http_limit_sliding_map_greeting(
    ngx_http_limit_sliding_node_t *node);
void ngx_http_limit_sliding_map_add(ngx_http_limit_sliding_node_t *node,
    int64_t first, int64_t last, ngx_str_t *host, int64_t port);

/* redirect */
ngx_int_t ngx_http_limit_sliding_redirect(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_call_t *call,
    ngx_http_limit_sliding_reply_t *reply);
ngx_uint_t ngx_http_limit_sliding_redirect_due(
    ngx_http_limit_sliding_ask_t *ask, ngx_http_limit_sliding_node_t *node);
ngx_int_t ngx_http_limit_sliding_call_asking(
    ngx_http_limit_sliding_node_t *node);

/* split */
ngx_int_t ngx_http_limit_sliding_split(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_ask_t *ask, limit_sliding_claim_t *claims,
    ngx_http_limit_sliding_waiter_t *waiter);

void ngx_http_limit_sliding_split_leave(
    ngx_http_limit_sliding_waiter_t *waiter);


#endif /* _NGX_HTTP_LIMIT_SLIDING_REDIS_CLUSTER_H_INCLUDED_ */
