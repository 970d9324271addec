
/*
 * Copyright (C) the limit_sliding authors
 */


/* topology cluster: the nodes that a worker knows, and whom it asks of what. */


#include "redis/cluster.h"


/* A redirection to one more is not believed. */

#define NGX_HTTP_LIMIT_SLIDING_NODES     1024


static ngx_http_limit_sliding_node_t *ngx_http_limit_sliding_cluster_add(
    ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_server_t *server);
static ngx_uint_t ngx_http_limit_sliding_cluster_rank(
    ngx_http_limit_sliding_node_t *node);
static void ngx_http_limit_sliding_cluster_free(
    ngx_http_limit_sliding_cluster_t *cluster,
    ngx_http_limit_sliding_node_t *node);


/* Seeds are nodes for as long as the worker lives: any of them may have to tell
 * the map again. */

ngx_int_t
ngx_http_limit_sliding_cluster_start(ngx_http_limit_sliding_redis_t *redis)
{
    ngx_uint_t                         i;
    ngx_http_limit_sliding_node_t     *node;
    ngx_http_limit_sliding_server_t   *servers;
    ngx_http_limit_sliding_cluster_t  *cluster;

    cluster = ngx_calloc(sizeof(ngx_http_limit_sliding_cluster_t),
                         ngx_cycle->log);
    if (cluster == NULL) {
        return NGX_ERROR;
    }

    ngx_queue_init(&cluster->nodes);

    cluster->stale = 1;

    cluster->refresh.handler = ngx_http_limit_sliding_map_refresh;
    cluster->refresh.data = redis;
    cluster->refresh.log = ngx_cycle->log;

    redis->cluster = cluster;

    servers = redis->servers.elts;

    for (i = 0; i < redis->servers.nelts; i++) {
        node = ngx_http_limit_sliding_cluster_add(redis, &servers[i]);

        if (node) {
            node->seed = 1;
        }
    }

    if (ngx_queue_empty(&cluster->nodes)) {
        ngx_free(cluster);
        redis->cluster = NULL;
        return NGX_ERROR;
    }

    return NGX_OK;
}


void
ngx_http_limit_sliding_cluster_exit(ngx_http_limit_sliding_redis_t *redis)
{
    ngx_queue_t  *q;

    for (q = ngx_queue_head(&redis->cluster->nodes);
         q != ngx_queue_sentinel(&redis->cluster->nodes);
         q = ngx_queue_next(q))
    {
        ngx_http_limit_sliding_node_close(
                    ngx_queue_data(q, ngx_http_limit_sliding_node_t, queue));
    }
}


static ngx_http_limit_sliding_node_t *
ngx_http_limit_sliding_cluster_add(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_server_t *server)
{
    ngx_http_limit_sliding_node_t  *node;

    node = ngx_http_limit_sliding_node_create(redis, server);

    if (node) {
        ngx_queue_insert_tail(&redis->cluster->nodes, &node->queue);
        redis->cluster->nnodes++;
    }

    return node;
}


/* The node of this address or name, perhaps a new one.  NULL: there is no
 * memory, or it cannot be. */

ngx_http_limit_sliding_node_t *
ngx_http_limit_sliding_cluster_node(ngx_http_limit_sliding_redis_t *redis,
    ngx_str_t *host, ngx_int_t port)
{
    ngx_str_t                          name;
    ngx_queue_t                       *q;
    ngx_http_limit_sliding_node_t     *node;
    ngx_http_limit_sliding_cluster_t  *cluster;

    cluster = redis->cluster;

    for (q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_http_limit_sliding_node_t, queue);

        ngx_http_limit_sliding_node_host(node, &name);

        if (node->server->url.port == port && name.len == host->len
            && ngx_strncmp(name.data, host->data, name.len) == 0)
        {
            return node;
        }
    }

    if (cluster->nnodes == NGX_HTTP_LIMIT_SLIDING_NODES) {
        return NULL;
    }

    node = ngx_http_limit_sliding_cluster_add(redis, redis->servers.elts);
    if (node == NULL) {
        return NULL;
    }

    if (ngx_http_limit_sliding_node_set_address(node, host, port) != NGX_OK) {
        ngx_http_limit_sliding_cluster_free(cluster, node);
        return NULL;
    }

    ngx_http_limit_sliding_node_use_address(node);

    return node;
}


/* Whom to ask of this slot.  While that is not known, anybody: he will tell. */

ngx_http_limit_sliding_node_t *
ngx_http_limit_sliding_route(ngx_http_limit_sliding_redis_t *redis,
    ngx_int_t slot)
{
    ngx_http_limit_sliding_node_t  *node;

    if (redis->cluster == NULL) {
        return redis->node;
    }

    node = redis->cluster->slots[slot];

    return node ? node : ngx_http_limit_sliding_cluster_any(redis->cluster);
}


/* Should a request wait for this slot's node? */

ngx_uint_t
ngx_http_limit_sliding_is_worth(ngx_http_limit_sliding_redis_t *redis,
    ngx_int_t slot)
{
    ngx_http_limit_sliding_node_t  *node;

    if (redis->cluster == NULL) {
        return 1;
    }

    node = ngx_http_limit_sliding_route(redis, slot);

    if (redis->cluster->stale) {
        ngx_post_event(&redis->cluster->refresh, &ngx_posted_events);
    }

    if (ngx_http_limit_sliding_node_is_usable(node)
        && (node->failures < NGX_HTTP_LIMIT_SLIDING_FAILURES
            || (node->ndue == 0 && node->ncalls == 0)))
    {
        return 1;
    }

    /* perhaps it has been replaced */

    ngx_http_limit_sliding_map_stale(redis, NULL);

    return 0;
}


/*
 * Connects to nodes that requests do not wait for any more; one that answers
 * is worth waiting for again.  Returns in how many milliseconds another one is
 * to be tried.
 */

ngx_msec_t
ngx_http_limit_sliding_cluster_retry(ngx_http_limit_sliding_redis_t *redis)
{
    ngx_msec_t                         wait;
    ngx_queue_t                       *q;
    ngx_msec_int_t                     left;
    ngx_http_limit_sliding_node_t     *node;
    ngx_http_limit_sliding_cluster_t  *cluster;

    cluster = redis->cluster;

    wait = NGX_MAX_INT32_VALUE;

    for (q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_http_limit_sliding_node_t, queue);

        if (node->failures < NGX_HTTP_LIMIT_SLIDING_FAILURES
            || node->state != NGX_HTTP_LIMIT_SLIDING_CLOSED
            || (cluster->loaded && !node->mapped))
        {
            continue;
        }

        left = (ngx_msec_int_t) (node->retry_at - ngx_current_msec);

        if (left > 0) {
            wait = ngx_min(wait, (ngx_msec_t) left);
            continue;
        }

        (void) ngx_http_limit_sliding_node_open(node);
    }

    return wait;
}


/* There is always one: the seeds. */

ngx_http_limit_sliding_node_t *
ngx_http_limit_sliding_cluster_any(ngx_http_limit_sliding_cluster_t *cluster)
{
    ngx_uint_t                      rank, best;
    ngx_queue_t                    *q;
    ngx_http_limit_sliding_node_t  *node, *any;

    any = NULL;
    best = 0;

    for (q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_http_limit_sliding_node_t, queue);

        rank = ngx_http_limit_sliding_cluster_rank(node);

        if (any == NULL || rank > best) {
            any = node;
            best = rank;
        }
    }

    return any;
}


/* One that answers, will soon, may, or has not done for long. */

static ngx_uint_t
ngx_http_limit_sliding_cluster_rank(ngx_http_limit_sliding_node_t *node)
{
    if (node->state == NGX_HTTP_LIMIT_SLIDING_READY && node->failures == 0) {
        return NGX_MAX_INT32_VALUE;
    }

    if (!ngx_http_limit_sliding_node_is_usable(node)) {
        return 0;
    }

    return 2 * (NGX_HTTP_LIMIT_SLIDING_FAILURES
                - ngx_min(node->failures, NGX_HTTP_LIMIT_SLIDING_FAILURES))
           + (node->state != NGX_HTTP_LIMIT_SLIDING_CLOSED) + 1;
}


/* Another node than this one answers: not one that only a redirection named,
 * which may be nobody's or the same server. */

ngx_uint_t
ngx_http_limit_sliding_cluster_is_alive(ngx_http_limit_sliding_node_t *but)
{
    ngx_queue_t                       *q;
    ngx_http_limit_sliding_node_t     *node;
    ngx_http_limit_sliding_cluster_t  *cluster;

    cluster = but->redis->cluster;

    for (q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_http_limit_sliding_node_t, queue);

        if (node != but && node->failures == 0
            && node->state == NGX_HTTP_LIMIT_SLIDING_READY
            && (node->mapped || node->seed))
        {
            return 1;
        }
    }

    return 0;
}


/* Those that have no slots any more, but for the one that has told so. */

void
ngx_http_limit_sliding_cluster_forget(
    ngx_http_limit_sliding_cluster_t *cluster,
    ngx_http_limit_sliding_node_t *but)
{
    ngx_uint_t                      i;
    ngx_queue_t                    *q, *next;
    ngx_http_limit_sliding_node_t  *node;

    for (q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_http_limit_sliding_node_t, queue);
        node->mapped = 0;
    }

    for (i = 0; i < LIMIT_SLIDING_CLUSTER_SLOTS; i++) {
        if (cluster->slots[i]) {
            cluster->slots[i]->mapped = 1;
        }
    }

    for (q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes);
         q = next)
    {
        next = ngx_queue_next(q);
        node = ngx_queue_data(q, ngx_http_limit_sliding_node_t, queue);

        if (node->mapped || node == but || node->ndue || node->ncalls) {
            continue;
        }

        if (node->seed) {
            ngx_http_limit_sliding_node_close(node);
            continue;
        }

        ngx_http_limit_sliding_cluster_free(cluster, node);
    }
}


static void
ngx_http_limit_sliding_cluster_free(ngx_http_limit_sliding_cluster_t *cluster,
    ngx_http_limit_sliding_node_t *node)
{
    ngx_http_limit_sliding_node_close(node);

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
