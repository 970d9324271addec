
/*
 * Copyright (C) the limit_sliding authors
 */

/* Which node has which slots: asked at first, and when that is seen to have
 * changed, but not once for every request that sees it. */

#include "ngx/ngx.hpp"
#include "redis/cluster.hpp"
#include "redis/tls.hpp"

#include <hiredis/hiredis.h>

namespace limit_sliding {

constexpr auto kRefresh = 1000;

static ngx_int_t map_ask(Node *node);
static void map_answered(Node &node, Call &call, Reply *reply);
static void map_refused(Node *node, Reply *reply);
static void map_changed(Node *node);

/* The hint is a node that has seen it. */

void map_stale(Cluster *cluster, Node *hint)
{
    cluster->stale = 1;
    cluster->hint = hint;

    ngx_post_event(&cluster->refresh, &ngx_posted_events);
}

/* Posted.  Requests that follow will post it again if it is too early. */

void map_refresh(ngx_event_t *ev)
{
    Cluster *cluster = ev->data;

    Node *node;

    if (!cluster->stale || cluster->asked
        || (cluster->loaded
            && ngx_current_msec - cluster->asked_at < kRefresh)) {
        return;
    }

    node = cluster->hint;

    if (node == NULL || node->state != NodeState::kReady) {
        node = cluster_any(cluster);
    }

    cluster->hint = NULL;

    /* if it is to be connected to, that asks */

    if (node->open() == NGX_OK && map_ask(node) == NGX_OK) {
        node->send();
    }
}

/* Before a new connection is used: so the first requests wait for it. */

ngx_int_t map_greeting(Node *node)
{
    Cluster *cluster;

    cluster = node->nodes->cluster;

    if (!cluster->stale || cluster->asked) {
        return NGX_OK;
    }

    if (map_ask(node) != NGX_OK) {
        node->fail(0, "no memory");
        return NGX_ERROR;
    }

    node->greetings++;

    return NGX_OK;
}

static ngx_int_t map_ask(Node *node)
{
    Call *call;
    Cluster *cluster;

    static const char *argv[] = {"CLUSTER", "SLOTS"};
    static const size_t argvlen[] = {7, 5};

    call = ngx_calloc(sizeof(Call), ngx_cycle->log);
    if (call == NULL) {
        return NGX_ERROR;
    }

    call->handler = map_answered;
    call->map = 1;

    if (node->command(*call, 2, argv, argvlen) != NGX_OK) {
        ngx_free(call);
        return NGX_ERROR;
    }

    cluster = node->nodes->cluster;

    cluster->asked = node;
    cluster->asked_at = ngx_current_msec;
    cluster->ranges = 0;

    /* the next one, another time */

    ngx_queue_remove(&node->queue);
    ngx_queue_insert_tail(&cluster->nodes, &node->queue);

    return NGX_OK;
}

/* A range of the reply, while that is being read. */

void map_add(Node *node, int64_t first, int64_t last, ngx_str_t *host,
             int64_t port)
{
    ngx_str_t own;
    Node *to;
    Cluster *cluster;

    if (first < 0 || last >= kClusterSlots || port < 1 || port > 65535) {
        return;
    }

    if (host->len == 0 || host->data[0] == '?') {
        /* it does not know by which name we know it */
        node_host(node, &own);
        host = &own;
    }

    to = cluster_node(node->nodes->cluster, host, (ngx_int_t)port);
    if (to == NULL) {
        return;
    }

    cluster = node->nodes->cluster;

    cluster->ranges++;

    while (first <= last) {
        cluster->slots[first++] = to;
    }
}

static void map_answered(Node &from, Call &call, Reply *reply)
{
    Node *node = &from;

    Cluster *cluster;

    ngx_free(&call);

    cluster = node->nodes->cluster;

    cluster->asked = NULL;

    if (reply == NULL) {
        return;
    }

    if (reply->type != REDIS_REPLY_ARRAY || cluster->ranges == 0) {
        map_refused(node, reply);
        return;
    }

    cluster->loaded = 1;
    cluster->stale = 0;

    map_changed(node);

    if (node->state == NodeState::kGreeting && --node->greetings == 0) {
        node_ready(node);
    }
}

/* Another node may know better. */

static void map_refused(Node *node, Reply *reply)
{
    char *reason;

    reason = (reply->type == REDIS_REPLY_ERROR) ? reply_text(reply)
                                                : "it knows of no slots";

    if (node->state == NodeState::kGreeting) {
        node->broken = reason;
        return;
    }

    node->log->write(0, "%V: %s", &node->server->text, reason);
}

static void map_changed(Node *node)
{
    ngx_queue_t *q;
    Node *other;
    Cluster *cluster;

    cluster = node->nodes->cluster;

    for (q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes); q = ngx_queue_next(q)) {
        other = ngx_queue_data(q, Node, queue);

        if (other->ndue) {
            other->post_flush();
        }
    }

    cluster_forget(cluster, node);
}

} // namespace limit_sliding
