
/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * A worker's connection to a server: commands leave in order, and so do their
 * replies come back.  What goes wrong closes it, and everything under way has
 * failed: a late reply must never be another's.
 */

#include "ngx/ngx.hpp"
#include "redis/cluster.hpp"
#include "redis/tls.hpp"

namespace limit_sliding {

/* Attempts to connect are so far apart, the more of them have failed. */

constexpr auto kRetryMin = 100;
constexpr auto kRetryMax = 1000;

static void node_timer(ngx_event_t *ev);
static void node_flush(ngx_event_t *ev);
static void node_take_calls(Node *node, ngx_queue_t *calls);
static void node_drop(Node *node, ngx_queue_t *calls);
static void node_back_off(Node *node);

/* Of the worker, for as long as it lives. */

Node *node_create(Nodes *nodes, Server *server)
{
    Node *node;

    node = ngx_calloc(sizeof(Node), ngx_cycle->log);
    if (node == NULL) {
        return NULL;
    }

    node->redis = nodes->redis;
    node->nodes = nodes;
    node->settings = nodes->settings;
    node->log = &nodes->log;

    node->timer.handler = node_timer;
    node->timer.data = node;
    node->timer.log = ngx_cycle->log;
    node->timer.cancelable = 1;

    node->flush.handler = node_flush;
    node->flush.data = node;
    node->flush.log = ngx_cycle->log;

    ngx_queue_init(&node->due);
    ngx_queue_init(&node->calls);

    node_set_server(node, server);

    return node;
}

/* To connect to next. */

void node_set_server(Node *node, Server *server)
{
    ngx_uint_t i;

    node->server = server;

    for (i = 0; i < server->url.naddrs && i < kAddressesMax; i++) {
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

ngx_int_t Node::open()
{
    Node *node = this;

    if (node->state == NodeState::kReady) {
        return NGX_OK;
    }

    if (node->state != NodeState::kClosed) {
        return NGX_AGAIN;
    }

    if (!node->is_usable()) {
        return NGX_DECLINED;
    }

    ngx_add_timer(&node->timer, node->settings->connect_timeout);

    node->tries = 0;

    node_resolve(node);

    return NGX_AGAIN;
}

/* Is it worth waiting for? */

bool Node::is_usable() const
{
    auto *node = this;

    return node->state != NodeState::kClosed || node->failures == 0
           || (ngx_msec_int_t)(node->retry_at - ngx_current_msec) <= 0;
}

/* Once connected; from now on the timer is that of the oldest call. */

void node_ready(Node *node)
{
    node->state = NodeState::kReady;

    if (node->timer.timer_set) {
        ngx_del_timer(&node->timer);
    }

    node->peer.connection->idle = 1;

    ngx_post_event(&node->flush, &ngx_posted_events);
}

static void node_flush(ngx_event_t *ev)
{
    Node *node = ev->data;

    node->nodes->events->flush(*node);
}

static void node_timer(ngx_event_t *ev)
{
    Node *node = ev->data;

    ngx_queue_t *q;
    ngx_msec_int_t left;
    Call *call;

    if (node->state != NodeState::kReady) {
        node->fail(NGX_ETIMEDOUT, "connecting took too long");
        return;
    }

    if (ngx_queue_empty(&node->calls)) {
        return;
    }

    q = ngx_queue_head(&node->calls);
    call = ngx_queue_data(q, Call, link);

    left = call->sent + node->settings->timeout - ngx_current_msec;

    if (left > 0) {
        ngx_add_timer(ev, (ngx_msec_t)left);
        return;
    }

    node->fail(NGX_ETIMEDOUT, "no reply in time");
}

/* nginx closes idle connections when a worker is to exit, others it does not
 * wait for. */

void node_rest(Node *node)
{
    if (node->state != NodeState::kReady || !ngx_queue_empty(&node->calls)) {
        return;
    }

    if (ngx_exiting && ngx_queue_empty(&node->due)) {
        node_close(node);
        return;
    }

    node->peer.connection->idle = 1;
}

/* The worker exits. */

void node_leave(Node *node)
{
    ngx_queue_t calls;

    node_take_calls(node, &calls);
    node_close(node);
    node_drop(node, &calls);
}

/* Closes the connection; all calls under way have failed. */

void Node::fail(ngx_err_t err, const char *reason)
{
    Node *node = this;

    ngx_uint_t ready, idle;
    ngx_queue_t calls;
    ready = (node->state == NodeState::kReady);
    idle = (ready && node->broken == NULL && ngx_queue_empty(&node->calls)
            && ngx_queue_empty(&node->due));

    if (reason && nodes->cluster) {
        node->log->write(err, "%V: %s", &node->server->text, reason);

    } else if (reason) {
        node->log->write(err, "%s", reason);
    }

    node_take_calls(node, &calls);

    if (node_may_find(node)) {
        node_disconnect(node);
        node_drop(node, &calls);
        node_resolve(node);
        return;
    }

    node_close(node);

    if (node == nodes->watch) {
        /* nobody waits for it */
        node_drop(node, &calls);
        return;
    }

    node_back_off(node);

    if (!idle) {
        /* one that rested may have been closed for that */
        nodes->events->failed(*node);
    }

    node_drop(node, &calls);

    if (nodes->cluster) {
        map_stale(nodes->cluster, NULL);
    }

    if (!ready) {
        nodes->events->fail_due(*node);

    } else if (!ngx_queue_empty(&node->due)) {
        ngx_post_event(&node->flush, &ngx_posted_events);
    }
}

void Node::succeeded()
{
    failures = 0;
    answered = 1;
}

/* The first time at once: a server that was restarted is there again. */

static void node_back_off(Node *node)
{
    ngx_msec_t delay;

    if (node->failures++ == 0 && node->answered) {
        node->retry_at = ngx_current_msec;
        node->answered = 0;
        return;
    }

    delay = kRetryMin << ngx_min(node->failures - 1, 4);
    delay = ngx_min(delay, kRetryMax);

    node->retry_at = ngx_current_msec + delay / 2 + ngx_random() % (delay / 2);
}

static void node_take_calls(Node *node, ngx_queue_t *calls)
{
    ngx_queue_init(calls);

    if (!ngx_queue_empty(&node->calls)) {
        ngx_queue_add(calls, &node->calls);
        ngx_queue_init(&node->calls);
    }

    node->ncalls = 0;
}

static void node_drop(Node *node, ngx_queue_t *calls)
{
    ngx_queue_t *q;
    Call *call;

    while (!ngx_queue_empty(calls)) {
        q = ngx_queue_head(calls);
        ngx_queue_remove(q);

        call = ngx_queue_data(q, Call, link);
        call->handler(*node, *call, NULL);
    }
}

void node_close(Node *node)
{
    node->state = NodeState::kClosed;
    node->finding = 0;
    node->found = 0;

    if (node->timer.timer_set) {
        ngx_del_timer(&node->timer);
    }

    if (node->resolving) {
        ngx_resolve_name_done(node->resolving);
        node->resolving = NULL;
    }

    node_disconnect(node);
}

} // namespace limit_sliding
