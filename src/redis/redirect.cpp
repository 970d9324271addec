
/*
 * Copyright (C) the limit_sliding authors
 */

/* An ask that did not run where it was sent to is due elsewhere: so often, and
 * so long, that whoever waits for it still does. */

#include "ngx/ngx.hpp"
#include "redis/cluster.hpp"

namespace limit_sliding {

enum class Direction { kMoved = 0, kAsked, kAgain };

static Node *redirect_to(Node *node, Reply *reply, Direction *direction);
static Node *parse_direction(Node *node, u_char *p, u_char *last);
static void unask(Ask *ask);
static void asking_answered(Node *node, Call *call, Reply *reply);

/* NGX_DECLINED: the error is none of these, or has been followed far enough. */

ngx_int_t redirect_call(Node *node, Call *call, Reply *reply)
{
    ngx_queue_t *q;
    Ask *ask;
    Node *to;
    Direction direction;

    to = redirect_to(node, reply, &direction);
    if (to == NULL) {
        return NGX_DECLINED;
    }

    /* a call is of one ask */

    q = ngx_queue_head(&call->asks);
    ask = ngx_queue_data(q, Ask, queue);

    if (direction == Direction::kMoved) {
        node->redis->cluster->slots[ask->slot] = to;
        map_stale(node->redis, node);
    }

    if (ask->hops >= kHopsMax
        || ngx_current_msec - ask->since >= node->redis->timeout) {
        return NGX_DECLINED;
    }

    ask->hops++;

    ngx_queue_remove(q);
    ngx_free(call);

    unask(ask);

    ask->asking = (direction == Direction::kAsked);
    make_due(ask, to);

    return NGX_OK;
}

static Node *redirect_to(Node *node, Reply *reply, Direction *direction)
{
    u_char *p, *last;

    p = reply->text;
    last = p + reply->len;

    if (reply->len > 6 && ngx_strncmp(p, "MOVED ", 6) == 0) {
        *direction = Direction::kMoved;
        return parse_direction(node, p + 6, last);
    }

    if (reply->len > 4 && ngx_strncmp(p, "ASK ", 4) == 0) {
        *direction = Direction::kAsked;
        return parse_direction(node, p + 4, last);
    }

    if (ngx_strlcasestrn(p, last, (u_char *)"non local key", 13 - 1)) {

        /*
         * Of a slot that moves: the script's first command expired the last
         * event of a log, and what no longer exists is asked elsewhere.
         */

        *direction = Direction::kAgain;
        return node;
    }

    if (reply->len > 11 && ngx_strncmp(p, "CLUSTERDOWN", 11) == 0) {
        map_stale(node->redis, node);
    }

    return NULL;
}

/*
 * "slot host:port": the slot is the one that was asked of.  A host may have
 * colons, or be left out: it is the same.
 */

static Node *parse_direction(Node *node, u_char *p, u_char *last)
{
    u_char *blank, *colon;
    ngx_str_t host;

    blank = ngx_strlchr(p, last, ' ');
    if (blank == NULL) {
        return NULL;
    }

    for (colon = last - 1; *colon != ':'; colon--) {
        if (colon == blank) {
            return NULL;
        }
    }

    host.data = blank + 1;
    host.len = colon - host.data;

    if (host.len == 0 || host.data[0] == '?') {
        node_host(node, &host);
    }

    return cluster_node(node->redis, &host,
                        ngx_atoi(colon + 1, last - (colon + 1)));
}

/* As if it had not been: those who came meanwhile are behind the others. */

static void unask(Ask *ask)
{
    ngx_queue_t *q;
    Waiter *waiter;

    while (!ngx_queue_empty(&ask->asked)) {
        q = ngx_queue_last(&ask->asked);
        ngx_queue_remove(q);
        ngx_queue_insert_head(&ask->waiters, q);

        waiter = ngx_queue_data(q, Waiter, queue);
        waiter->asked = 0;
    }

    ask->units += ask->asked_units - ask->leased_units;
    ask->asked_units = 0;
    ask->leased_units = 0;
    ask->in_call = 0;
}

/* What was due at a node that could not be connected to, before it was known
 * who has its slot.  1: another one is tried. */

ngx_uint_t redirect_due(Ask *ask, Node *node)
{
    Node *to;

    if (node->redis->cluster == NULL || ask->asking || ask->hops >= kHopsMax) {
        return 0;
    }

    to = route(node->redis, ask->slot);

    if (to == node || !node_is_usable(to)) {
        return 0;
    }

    if (ask->hops++ == 0) {
        ask->since = ngx_current_msec;
    }

    make_due(ask, to);

    return 1;
}

/* Holds for the next command only. */

ngx_int_t call_asking(Node *node)
{
    Call *call;

    static const char *argv[] = {"ASKING"};
    static const size_t argvlen[] = {6};

    call = ngx_calloc(sizeof(Call), ngx_cycle->log);
    if (call == NULL) {
        return NGX_ERROR;
    }

    call->handler = asking_answered;

    if (node_command(node, call, 1, argv, argvlen) != NGX_OK) {
        ngx_free(call);
        return NGX_ERROR;
    }

    return NGX_OK;
}

/* If it was refused, so will be what follows. */

static void asking_answered(Node *node, Call *call, Reply *reply)
{
    ngx_free(call);
}

} // namespace limit_sliding
