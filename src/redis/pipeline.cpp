
/*
 * Copyright (C) the limit_sliding authors
 */

/* Commands and replies of a node. */

#include "ngx/ngx.hpp"
#include "redis/cluster.hpp"
#include "redis/tls.hpp"

#include <hiredis/hiredis.h>
#include <time.h>

namespace limit_sliding {

/* A larger buffer is not kept once all of it is sent. */

constexpr auto kOut = (64 * 1024);

static u_char *node_reserve(Node *node, size_t len);
static ngx_int_t node_replies(Node *node);
static ngx_uint_t expects_map(Node *node);

uint64_t clock_us()
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* Puts a command into the buffer; NGX_ERROR: there is no memory for it. */

ngx_int_t Node::command(Call &call, int argc, const char **argv,
                        const size_t *argvlen)
{
    Node *node = this;

    int len;
    char *text;
    u_char *p;

    len = redisFormatCommandArgv(&text, argc, argv, argvlen);
    if (len < 0) {
        return NGX_ERROR;
    }

    p = node_reserve(node, len);

    if (p) {
        ngx_memcpy(p, text, len);
        node->out_last += len;
    }

    redisFreeCommand(text);

    if (p == NULL) {
        return NGX_ERROR;
    }

    call.sent = ngx_current_msec;
    call.sent_us = clock_us();
    ngx_queue_insert_tail(&node->calls, &call.link);
    node->ncalls++;

    node->peer.connection->idle = 0;

    return NGX_OK;
}

static u_char *node_reserve(Node *node, size_t len)
{
    size_t size, unsent;
    u_char *out;

    if (node->out_size - node->out_last < len) {

        /* what was sent makes room, else a link that is always busy would
         * never let it */

        unsent = node->out_last - node->out_sent;
        size = ngx_max(2 * unsent + len, node->out_size);

        out = ngx_alloc(size, ngx_cycle->log);
        if (out == NULL) {
            return NULL;
        }

        if (node->out) {
            ngx_memcpy(out, node->out + node->out_sent, unsent);
            ngx_free(node->out);
        }

        node->out = out;
        node->out_size = size;
        node->out_sent = 0;
        node->out_last = unsent;
    }

    return node->out + node->out_last;
}

/* May fail the node. */

void Node::send()
{
    Node *node = this;

    ssize_t n;
    ngx_connection_t *c;

    c = node->peer.connection;

    while (node->out_sent < node->out_last) {

        n = c->send(c, node->out + node->out_sent,
                    node->out_last - node->out_sent);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n <= 0) {
            node->fail(ngx_socket_errno, "send() failed");
            return;
        }

        node->out_sent += n;
    }

    if (node->out_sent == node->out_last) {
        node->out_sent = 0;
        node->out_last = 0;

        if (node->out_size > kOut) {
            ngx_free(node->out);
            node->out = NULL;
            node->out_size = 0;
        }
    }

    if (ngx_handle_write_event(c->write, 0) != NGX_OK) {
        node->fail(0, "no event");
        return;
    }

    if (!node->timer.timer_set && !ngx_queue_empty(&node->calls)) {
        ngx_add_timer(&node->timer, node->settings->timeout);
    }
}

void node_write_handler(ngx_event_t *wev)
{
    ngx_connection_t *c = wev->data;

    if (c->close) {
        node_leave(c->data);
        return;
    }

    static_cast<Node *>(c->data)->send();
}

void node_read_handler(ngx_event_t *rev)
{
    ngx_connection_t *c = rev->data;

    ssize_t n;
    Node *node;

    static u_char buf[16 * 1024];

    node = c->data;

    if (c->close) {
        node_leave(node);
        return;
    }

    for (;;) {
        n = c->recv(c, buf, sizeof(buf));

        if (n == NGX_AGAIN) {
            break;
        }

        if (n <= 0) {
            node->fail(n == 0 ? 0 : ngx_socket_errno,
                       n == 0 ? "it closed the connection" : "recv() failed");
            return;
        }

        if (reader_feed(node->reader, buf, n) != NGX_OK
            || node_replies(node) != NGX_OK) {
            node->fail(0, node->broken ? node->broken : "invalid reply");
            return;
        }
    }

    if (node->finding && node->found) {
        node_turn_to_master(node);
        return;
    }

    if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        node->fail(0, "no event");
        return;
    }

    node_rest(node);
}

/* Handlers of calls leave the node open; they say in node->broken why not. */

static ngx_int_t node_replies(Node *node)
{
    ngx_int_t rc;
    ngx_queue_t *q;
    Call *call;

    for (;;) {
        node->reply.map = expects_map(node) ? node : NULL;

        rc = reader_next(node->reader);

        if (rc != NGX_OK) {
            return rc == NGX_AGAIN ? NGX_OK : NGX_ERROR;
        }

        if (ngx_queue_empty(&node->calls)) {
            node->blame(node->reply);
            return NGX_ERROR;
        }

        q = ngx_queue_head(&node->calls);
        ngx_queue_remove(q);
        node->ncalls--;

        call = ngx_queue_data(q, Call, link);
        call->handler(*node, *call, &node->reply);

        node->reply.type = 0;

        if (node->broken) {
            return NGX_ERROR;
        }
    }
}

/* Replies come in order: is the next one that of the slots? */

static ngx_uint_t expects_map(Node *node)
{
    ngx_queue_t *q;
    Call *call;

    if (ngx_queue_empty(&node->calls)) {
        return 0;
    }

    q = ngx_queue_head(&node->calls);
    call = ngx_queue_data(q, Call, link);

    return call->map;
}

/* A reply that nobody asked for, or not such a one: it may say why. */

void Node::blame(Reply &answer)
{
    Node *node = this;
    Reply *reply = &answer;

    if (reply->type != REDIS_REPLY_ERROR) {
        node->broken = "unexpected reply";
        return;
    }

    node->broken
        = node->finding ? sentinel_text(node, reply) : reply_text(reply);
}

} // namespace limit_sliding
