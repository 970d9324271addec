
/*
 * Copyright (C) the limit_sliding authors
 */

/* topology cluster: the nodes that a worker knows, and whom it asks of what. */

#include "redis/cluster.hpp"
#include "ngx/ngx.hpp"
#include "redis/tls.hpp"

namespace limit_sliding {

/* A redirection to one more is not believed. */

constexpr auto kNodesMax = 1024;

static Node *cluster_add(Cluster *cluster, Server *server);
static ngx_uint_t cluster_rank(Node *node);
static void cluster_free(Cluster *cluster, Node *node);

/* Seeds are nodes for as long as the worker lives: any of them may have to tell
 * the map again. */

ngx_int_t cluster_start(Nodes *nodes)
{
    ngx_uint_t i;
    Node *node;
    Server *servers;
    Cluster *cluster;

    cluster = ngx_calloc(sizeof(Cluster), ngx_cycle->log);
    if (cluster == NULL) {
        return NGX_ERROR;
    }

    ngx_queue_init(&cluster->nodes);

    cluster->stale = 1;

    cluster->refresh.handler = map_refresh;
    cluster->owner = nodes;
    cluster->refresh.data = cluster;
    cluster->refresh.log = ngx_cycle->log;

    nodes->cluster = cluster;

    servers = nodes->settings->servers.elts;

    for (i = 0; i < nodes->settings->servers.nelts; i++) {
        node = cluster_add(cluster, &servers[i]);

        if (node) {
            node->seed = 1;
        }
    }

    if (ngx_queue_empty(&cluster->nodes)) {
        ngx_free(cluster);
        nodes->cluster = NULL;
        return NGX_ERROR;
    }

    return NGX_OK;
}

void cluster_exit(Cluster *cluster)
{
    ngx_queue_t *q;

    for (q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes); q = ngx_queue_next(q)) {
        node_close(ngx_queue_data(q, Node, queue));
    }
}

static Node *cluster_add(Cluster *cluster, Server *server)
{
    Node *node;

    node = node_create(cluster->owner, server);

    if (node) {
        ngx_queue_insert_tail(&cluster->nodes, &node->queue);
        cluster->nnodes++;
    }

    return node;
}

/* The node of this address or name, perhaps a new one.  NULL: there is no
 * memory, or it cannot be. */

Node *cluster_node(Cluster *cluster, ngx_str_t *host, ngx_int_t port)
{
    ngx_str_t name;
    ngx_queue_t *q;
    Node *node;

    for (q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes); q = ngx_queue_next(q)) {
        node = ngx_queue_data(q, Node, queue);

        node_host(node, &name);

        if (node->server->url.port == port && name.len == host->len
            && ngx_strncmp(name.data, host->data, name.len) == 0) {
            return node;
        }
    }

    if (cluster->nnodes == kNodesMax) {
        return NULL;
    }

    node = cluster_add(cluster,
                       (Server *)cluster->owner->settings->servers.elts);
    if (node == NULL) {
        return NULL;
    }

    if (node_set_address(node, host, port) != NGX_OK) {
        cluster_free(cluster, node);
        return NULL;
    }

    node_use_address(node);

    return node;
}

/* There is always one: the seeds. */

Node *cluster_any(Cluster *cluster)
{
    ngx_uint_t rank, best;
    ngx_queue_t *q;
    Node *node, *any;

    any = NULL;
    best = 0;

    for (q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes); q = ngx_queue_next(q)) {
        node = ngx_queue_data(q, Node, queue);

        rank = cluster_rank(node);

        if (any == NULL || rank > best) {
            any = node;
            best = rank;
        }
    }

    return any;
}

/* One that answers, will soon, may, or has not done for long. */

static ngx_uint_t cluster_rank(Node *node)
{
    if (node->state == NodeState::kReady && node->failures == 0) {
        return NGX_MAX_INT32_VALUE;
    }

    if (!node->is_usable()) {
        return 0;
    }

    return 2 * (kFailuresMax - ngx_min(node->failures, kFailuresMax))
           + (node->state != NodeState::kClosed) + 1;
}

/* Those that have no slots any more, but for the one that has told so. */

void cluster_forget(Cluster *cluster, Node *but)
{
    ngx_uint_t i;
    ngx_queue_t *q, *next;
    Node *node;

    for (q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes); q = ngx_queue_next(q)) {
        node = ngx_queue_data(q, Node, queue);
        node->mapped = 0;
    }

    for (i = 0; i < kClusterSlots; i++) {
        if (cluster->slots[i]) {
            cluster->slots[i]->mapped = 1;
        }
    }

    for (q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes); q = next) {
        next = ngx_queue_next(q);
        node = ngx_queue_data(q, Node, queue);

        if (node->mapped || node == but || node->ndue || node->ncalls) {
            continue;
        }

        if (node->seed) {
            node_close(node);
            continue;
        }

        cluster_free(cluster, node);
    }
}

static void cluster_free(Cluster *cluster, Node *node)
{
    node_close(node);

    if (node->flush.posted) {
        ngx_delete_posted_event(&node->flush);
    }

    if (cluster->hint == node) {
        cluster->hint = NULL;
    }

    ngx_queue_remove(&node->queue);
    cluster->nnodes--;

    if (node->out) {
        ngx_free(node->out);
    }

    ngx_free(node);
}

} // namespace limit_sliding
