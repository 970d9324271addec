
/*
 * Copyright (C) the limit_sliding authors
 */


/* Which node has which slots: asked at first, and when that is seen to have
 * changed, but not once for every request that sees it. */


#include "redis/cluster.h"

#include <hiredis/hiredis.h>


#define NGX_HTTP_LIMIT_SLIDING_REFRESH  1000


static ngx_int_t ngx_http_limit_sliding_map_ask(
    ngx_http_limit_sliding_node_t *node);
static void ngx_http_limit_sliding_map_answered(
    ngx_http_limit_sliding_node_t *node, ngx_http_limit_sliding_call_t *call,
    ngx_http_limit_sliding_reply_t *reply);
static void ngx_http_limit_sliding_map_refused(
    ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_reply_t *reply);
static void ngx_http_limit_sliding_map_changed(
    ngx_http_limit_sliding_node_t *node);


/* The hint is a node that has seen it. */

void
ngx_http_limit_sliding_map_stale(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_node_t *hint)
{
    redis->cluster->stale = 1;
    redis->cluster->hint = hint;

    ngx_post_event(&redis->cluster->refresh, &ngx_posted_events);
}


/* Posted.  Requests that follow will post it again if it is too early. */

void
ngx_http_limit_sliding_map_refresh(ngx_event_t *ev)
{
    ngx_http_limit_sliding_redis_t  *redis = ev->data;

    ngx_http_limit_sliding_node_t     *node;
    ngx_http_limit_sliding_cluster_t  *cluster;

    cluster = redis->cluster;

    if (!cluster->stale || cluster->asked
        || (cluster->loaded
            && ngx_current_msec - cluster->asked_at
               < NGX_HTTP_LIMIT_SLIDING_REFRESH))
    {
        return;
    }

    node = cluster->hint;

    if (node == NULL || node->state != NGX_HTTP_LIMIT_SLIDING_READY) {
        node = ngx_http_limit_sliding_cluster_any(cluster);
    }

    cluster->hint = NULL;

    /* if it is to be connected to, that asks */

    if (ngx_http_limit_sliding_node_open(node) == NGX_OK
        && ngx_http_limit_sliding_map_ask(node) == NGX_OK)
    {
        ngx_http_limit_sliding_node_send(node);
    }
}


/* Before a new connection is used: so the first requests wait for it. */

ngx_int_t
ngx_http_limit_sliding_map_greeting(ngx_http_limit_sliding_node_t *node)
{
    ngx_http_limit_sliding_cluster_t  *cluster;

    cluster = node->redis->cluster;

    if (!cluster->stale || cluster->asked) {
        return NGX_OK;
    }

    if (ngx_http_limit_sliding_map_ask(node) != NGX_OK) {
        ngx_http_limit_sliding_node_fail(node, 0, "no memory");
        return NGX_ERROR;
    }

    node->greetings++;

    return NGX_OK;
}


static ngx_int_t
ngx_http_limit_sliding_map_ask(ngx_http_limit_sliding_node_t *node)
{
    ngx_http_limit_sliding_call_t     *call;
    ngx_http_limit_sliding_cluster_t  *cluster;

    static const char    *argv[] = { "CLUSTER", "SLOTS" };
    static const size_t   argvlen[] = { 7, 5 };

    call = ngx_calloc(sizeof(ngx_http_limit_sliding_call_t), ngx_cycle->log);
    if (call == NULL) {
        return NGX_ERROR;
    }

    call->handler = ngx_http_limit_sliding_map_answered;
    call->map = 1;

    if (ngx_http_limit_sliding_node_command(node, call, 2, argv, argvlen)
        != NGX_OK)
    {
        ngx_free(call);
        return NGX_ERROR;
    }

    cluster = node->redis->cluster;

    cluster->asked = node;
    cluster->asked_at = ngx_current_msec;
    cluster->ranges = 0;

    /* the next one, another time */

    ngx_queue_remove(&node->queue);
    ngx_queue_insert_tail(&cluster->nodes, &node->queue);

    return NGX_OK;
}


/* A range of the reply, while that is being read. */

void
ngx_http_limit_sliding_map_add(ngx_http_limit_sliding_node_t *node,
    int64_t first, int64_t last, ngx_str_t *host, int64_t port)
{
    ngx_str_t                          own;
    ngx_http_limit_sliding_node_t     *to;
    ngx_http_limit_sliding_cluster_t  *cluster;

    if (first < 0 || last >= LIMIT_SLIDING_CLUSTER_SLOTS
        || port < 1 || port > 65535)
    {
        return;
    }

    if (host->len == 0 || host->data[0] == '?') {
        /* it does not know by which name we know it */
        ngx_http_limit_sliding_node_host(node, &own);
        host = &own;
    }

    to = ngx_http_limit_sliding_cluster_node(node->redis, host,
                                             (ngx_int_t) port);
    if (to == NULL) {
        return;
    }

    cluster = node->redis->cluster;

    cluster->ranges++;

    while (first <= last) {
        cluster->slots[first++] = to;
    }
}


static void
ngx_http_limit_sliding_map_answered(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_call_t *call, ngx_http_limit_sliding_reply_t *reply)
{
    ngx_http_limit_sliding_cluster_t  *cluster;

    ngx_free(call);

    cluster = node->redis->cluster;

    cluster->asked = NULL;

    if (reply == NULL) {
        return;
    }

    if (reply->type != REDIS_REPLY_ARRAY || cluster->ranges == 0) {
        ngx_http_limit_sliding_map_refused(node, reply);
        return;
    }

    cluster->loaded = 1;
    cluster->stale = 0;

    ngx_http_limit_sliding_map_changed(node);

    if (node->state == NGX_HTTP_LIMIT_SLIDING_GREETING
        && --node->greetings == 0)
    {
        ngx_http_limit_sliding_node_ready(node);
    }
}


/* Another node may know better. */

static void
ngx_http_limit_sliding_map_refused(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_reply_t *reply)
{
    char  *reason;

    reason = (reply->type == REDIS_REPLY_ERROR)
             ? ngx_http_limit_sliding_reply_text(reply)
             : "it knows of no slots";

    if (node->state == NGX_HTTP_LIMIT_SLIDING_GREETING) {
        node->broken = reason;
        return;
    }

    ngx_http_limit_sliding_redis_log(node->redis, 0, "%V: %s",
                                     &node->server->text, reason);
}


static void
ngx_http_limit_sliding_map_changed(ngx_http_limit_sliding_node_t *node)
{
    ngx_queue_t                       *q;
    ngx_http_limit_sliding_node_t     *other;
    ngx_http_limit_sliding_cluster_t  *cluster;

    cluster = node->redis->cluster;

    for (q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes);
         q = ngx_queue_next(q))
    {
        other = ngx_queue_data(q, ngx_http_limit_sliding_node_t, queue);

        if (other->ndue) {
            ngx_post_event(&other->flush, &ngx_posted_events);
        }
    }

    ngx_http_limit_sliding_cluster_forget(cluster, node);
}
