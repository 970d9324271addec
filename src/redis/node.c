
/*
 * Copyright (C) the limit_sliding authors
 */


/*
 * A worker's connection to a server: commands leave in order, and so do their
 * replies come back.  What goes wrong closes it, and everything under way has
 * failed: a late reply must never be another's.
 */


#include "redis/cluster.h"


/* Attempts to connect are so far apart, the more of them have failed. */

#define NGX_HTTP_LIMIT_SLIDING_RETRY_MIN  100
#define NGX_HTTP_LIMIT_SLIDING_RETRY_MAX  1000


static void ngx_http_limit_sliding_node_timer(ngx_event_t *ev);
static void ngx_http_limit_sliding_node_take_calls(
    ngx_http_limit_sliding_node_t *node, ngx_queue_t *calls);
static void ngx_http_limit_sliding_node_drop(
    ngx_http_limit_sliding_node_t *node, ngx_queue_t *calls);
static void ngx_http_limit_sliding_node_back_off(
    ngx_http_limit_sliding_node_t *node);


/* Of the worker, for as long as it lives. */

ngx_http_limit_sliding_node_t *
ngx_http_limit_sliding_node_create(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_server_t *server)
{
    ngx_http_limit_sliding_node_t  *node;

    node = ngx_calloc(sizeof(ngx_http_limit_sliding_node_t), ngx_cycle->log);
    if (node == NULL) {
        return NULL;
    }

    node->redis = redis;

    node->timer.handler = ngx_http_limit_sliding_node_timer;
    node->timer.data = node;
    node->timer.log = ngx_cycle->log;
    node->timer.cancelable = 1;

    node->flush.handler = ngx_http_limit_sliding_flush;
    node->flush.data = node;
    node->flush.log = ngx_cycle->log;

    ngx_queue_init(&node->due);
    ngx_queue_init(&node->calls);

    ngx_http_limit_sliding_node_set_server(node, server);

    return node;
}


/* To connect to next. */

void
ngx_http_limit_sliding_node_set_server(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_server_t *server)
{
    ngx_uint_t  i;

    node->server = server;

    for (i = 0; i < server->url.naddrs
                && i < NGX_HTTP_LIMIT_SLIDING_ADDRS; i++)
    {
        ngx_memcpy(&node->sockaddrs[i], server->url.addrs[i].sockaddr,
                   server->url.addrs[i].socklen);
        node->socklens[i] = server->url.addrs[i].socklen;
    }

    node->naddrs = i;
}


/*
 * NGX_OK: commands may be sent; NGX_AGAIN: soon, or the flush is told that it
 * failed; NGX_DECLINED: it has failed, and it is not yet time to try again.
 */

ngx_int_t
ngx_http_limit_sliding_node_open(ngx_http_limit_sliding_node_t *node)
{
    if (node->state == NGX_HTTP_LIMIT_SLIDING_READY) {
        return NGX_OK;
    }

    if (node->state != NGX_HTTP_LIMIT_SLIDING_CLOSED) {
        return NGX_AGAIN;
    }

    if (!ngx_http_limit_sliding_node_is_usable(node)) {
        return NGX_DECLINED;
    }

    ngx_add_timer(&node->timer, node->redis->connect_timeout);

    node->tries = 0;

    ngx_http_limit_sliding_node_resolve(node);

    return NGX_AGAIN;
}


/* Is it worth waiting for? */

ngx_uint_t
ngx_http_limit_sliding_node_is_usable(ngx_http_limit_sliding_node_t *node)
{
    return node->state != NGX_HTTP_LIMIT_SLIDING_CLOSED
           || node->failures == 0
           || (ngx_msec_int_t) (node->retry_at - ngx_current_msec) <= 0;
}


/* Once connected; from now on the timer is that of the oldest call. */

void
ngx_http_limit_sliding_node_ready(ngx_http_limit_sliding_node_t *node)
{
    node->state = NGX_HTTP_LIMIT_SLIDING_READY;

    if (node->timer.timer_set) {
        ngx_del_timer(&node->timer);
    }

    node->peer.connection->idle = 1;

    ngx_post_event(&node->flush, &ngx_posted_events);
}


static void
ngx_http_limit_sliding_node_timer(ngx_event_t *ev)
{
    ngx_http_limit_sliding_node_t  *node = ev->data;

    ngx_queue_t                    *q;
    ngx_msec_int_t                  left;
    ngx_http_limit_sliding_call_t  *call;

    if (node->state != NGX_HTTP_LIMIT_SLIDING_READY) {
        ngx_http_limit_sliding_node_fail(node, NGX_ETIMEDOUT,
                                         "connecting took too long");
        return;
    }

    if (ngx_queue_empty(&node->calls)) {
        return;
    }

    q = ngx_queue_head(&node->calls);
    call = ngx_queue_data(q, ngx_http_limit_sliding_call_t, queue);

    left = call->sent + node->redis->timeout - ngx_current_msec;

    if (left > 0) {
        ngx_add_timer(ev, (ngx_msec_t) left);
        return;
    }

    ngx_http_limit_sliding_node_fail(node, NGX_ETIMEDOUT, "no reply in time");
}


/* nginx closes idle connections when a worker is to exit, others it does not
 * wait for. */

void
ngx_http_limit_sliding_node_rest(ngx_http_limit_sliding_node_t *node)
{
    if (node->state != NGX_HTTP_LIMIT_SLIDING_READY
        || !ngx_queue_empty(&node->calls))
    {
        return;
    }

    if (ngx_exiting && ngx_queue_empty(&node->due)) {
        ngx_http_limit_sliding_node_close(node);
        return;
    }

    node->peer.connection->idle = 1;
}


/* The worker exits. */

void
ngx_http_limit_sliding_node_leave(ngx_http_limit_sliding_node_t *node)
{
    ngx_queue_t  calls;

    ngx_http_limit_sliding_node_take_calls(node, &calls);
    ngx_http_limit_sliding_node_close(node);
    ngx_http_limit_sliding_node_drop(node, &calls);
}


/* Closes the connection; all calls under way have failed. */

void
ngx_http_limit_sliding_node_fail(ngx_http_limit_sliding_node_t *node,
    ngx_err_t err, char *reason)
{
    ngx_uint_t                       ready, idle;
    ngx_queue_t                      calls;
    ngx_http_limit_sliding_redis_t  *redis;

    redis = node->redis;
    ready = (node->state == NGX_HTTP_LIMIT_SLIDING_READY);
    idle = (ready && node->broken == NULL
            && ngx_queue_empty(&node->calls)
            && ngx_queue_empty(&node->due));

    if (reason && redis->cluster) {
        ngx_http_limit_sliding_redis_log(redis, err, "%V: %s",
                                         &node->server->text, reason);

    } else if (reason) {
        ngx_http_limit_sliding_redis_log(redis, err, "%s", reason);
    }

    ngx_http_limit_sliding_node_take_calls(node, &calls);

    if (ngx_http_limit_sliding_node_may_find(node)) {
        ngx_http_limit_sliding_node_disconnect(node);
        ngx_http_limit_sliding_node_drop(node, &calls);
        ngx_http_limit_sliding_node_resolve(node);
        return;
    }

    ngx_http_limit_sliding_node_close(node);

    if (node == redis->watch) {
        /* nobody waits for it */
        ngx_http_limit_sliding_node_drop(node, &calls);
        return;
    }

    ngx_http_limit_sliding_node_back_off(node);

    if (!idle) {
        /* one that rested may have been closed for that */
        ngx_http_limit_sliding_redis_failed(node);
    }

    ngx_http_limit_sliding_node_drop(node, &calls);

    if (redis->cluster) {
        ngx_http_limit_sliding_map_stale(redis, NULL);
    }

    if (!ready) {
        ngx_http_limit_sliding_fail_due(node);

    } else if (!ngx_queue_empty(&node->due)) {
        ngx_post_event(&node->flush, &ngx_posted_events);
    }
}


/* The first time at once: a server that was restarted is there again. */

static void
ngx_http_limit_sliding_node_back_off(ngx_http_limit_sliding_node_t *node)
{
    ngx_msec_t  delay;

    if (node->failures++ == 0 && node->answered) {
        node->retry_at = ngx_current_msec;
        node->answered = 0;
        return;
    }

    delay = NGX_HTTP_LIMIT_SLIDING_RETRY_MIN
            << ngx_min(node->failures - 1, 4);
    delay = ngx_min(delay, NGX_HTTP_LIMIT_SLIDING_RETRY_MAX);

    node->retry_at = ngx_current_msec + delay / 2
                     + ngx_random() % (delay / 2);
}


static void
ngx_http_limit_sliding_node_take_calls(ngx_http_limit_sliding_node_t *node,
    ngx_queue_t *calls)
{
    ngx_queue_init(calls);

    if (!ngx_queue_empty(&node->calls)) {
        ngx_queue_add(calls, &node->calls);
        ngx_queue_init(&node->calls);
    }

    node->ncalls = 0;
}


static void
ngx_http_limit_sliding_node_drop(ngx_http_limit_sliding_node_t *node,
    ngx_queue_t *calls)
{
    ngx_queue_t                    *q;
    ngx_http_limit_sliding_call_t  *call;

    while (!ngx_queue_empty(calls)) {
        q = ngx_queue_head(calls);
        ngx_queue_remove(q);

        call = ngx_queue_data(q, ngx_http_limit_sliding_call_t, queue);
        call->handler(node, call, NULL);
    }
}


void
ngx_http_limit_sliding_node_close(ngx_http_limit_sliding_node_t *node)
{
    node->state = NGX_HTTP_LIMIT_SLIDING_CLOSED;
    node->finding = 0;
    node->found = 0;

    if (node->timer.timer_set) {
        ngx_del_timer(&node->timer);
    }

    if (node->resolving) {
        ngx_resolve_name_done(node->resolving);
        node->resolving = NULL;
    }

    ngx_http_limit_sliding_node_disconnect(node);
}
