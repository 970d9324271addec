
/*
 * Copyright (C) the limit_sliding authors
 */


/* An ask that did not run where it was sent to is due elsewhere: so often, and
 * so long, that whoever waits for it still does. */


#include "redis/cluster.h"


typedef enum {
    NGX_HTTP_LIMIT_SLIDING_MOVED = 0,
    NGX_HTTP_LIMIT_SLIDING_ASKED,
    NGX_HTTP_LIMIT_SLIDING_AGAIN
} ngx_http_limit_sliding_direction_e;


static ngx_http_limit_sliding_node_t *ngx_http_limit_sliding_redirect_to(
    ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_reply_t *reply,
    ngx_http_limit_sliding_direction_e *direction);
static ngx_http_limit_sliding_node_t *ngx_http_limit_sliding_parse_direction(
    ngx_http_limit_sliding_node_t *node, u_char *p, u_char *last);
static void ngx_http_limit_sliding_unask(ngx_http_limit_sliding_ask_t *ask);
static void ngx_http_limit_sliding_asking_answered(
    ngx_http_limit_sliding_node_t *node, ngx_http_limit_sliding_call_t *call,
    ngx_http_limit_sliding_reply_t *reply);


/* NGX_DECLINED: the error is none of these, or has been followed far enough. */

ngx_int_t
ngx_http_limit_sliding_redirect(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_call_t *call, ngx_http_limit_sliding_reply_t *reply)
{
    ngx_queue_t                         *q;
    ngx_http_limit_sliding_ask_t        *ask;
    ngx_http_limit_sliding_node_t       *to;
    ngx_http_limit_sliding_direction_e   direction;

    to = ngx_http_limit_sliding_redirect_to(node, reply, &direction);
    if (to == NULL) {
        return NGX_DECLINED;
    }

    /* a call is of one ask */

    q = ngx_queue_head(&call->asks);
    ask = ngx_queue_data(q, ngx_http_limit_sliding_ask_t, queue);

    if (direction == NGX_HTTP_LIMIT_SLIDING_MOVED) {
        node->redis->cluster->slots[ask->slot] = to;
        ngx_http_limit_sliding_map_stale(node->redis, node);
    }

    if (ask->hops >= NGX_HTTP_LIMIT_SLIDING_HOPS
        || ngx_current_msec - ask->since >= node->redis->timeout)
    {
        return NGX_DECLINED;
    }

    ask->hops++;

    ngx_queue_remove(q);
    ngx_free(call);

    ngx_http_limit_sliding_unask(ask);

    ask->asking = (direction == NGX_HTTP_LIMIT_SLIDING_ASKED);
    ngx_http_limit_sliding_make_due(ask, to);

    return NGX_OK;
}


static ngx_http_limit_sliding_node_t *
ngx_http_limit_sliding_redirect_to(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_reply_t *reply,
    ngx_http_limit_sliding_direction_e *direction)
{
    u_char  *p, *last;

    p = reply->text;
    last = p + reply->len;

    if (reply->len > 6 && ngx_strncmp(p, "MOVED ", 6) == 0) {
        *direction = NGX_HTTP_LIMIT_SLIDING_MOVED;
        return ngx_http_limit_sliding_parse_direction(node, p + 6, last);
    }

    if (reply->len > 4 && ngx_strncmp(p, "ASK ", 4) == 0) {
        *direction = NGX_HTTP_LIMIT_SLIDING_ASKED;
        return ngx_http_limit_sliding_parse_direction(node, p + 4, last);
    }

    if (ngx_strlcasestrn(p, last, (u_char *) "non local key", 13 - 1)) {

        /*
         * Of a slot that moves: the script's first command expired the last
         * event of a log, and what no longer exists is asked elsewhere.
         */

        *direction = NGX_HTTP_LIMIT_SLIDING_AGAIN;
        return node;
    }

    if (reply->len > 11 && ngx_strncmp(p, "CLUSTERDOWN", 11) == 0) {
        ngx_http_limit_sliding_map_stale(node->redis, node);
    }

    return NULL;
}


/*
 * "slot host:port": the slot is the one that was asked of.  A host may have
 * colons, or be left out: it is the same.
 */

static ngx_http_limit_sliding_node_t *
ngx_http_limit_sliding_parse_direction(ngx_http_limit_sliding_node_t *node,
    u_char *p, u_char *last)
{
    u_char     *blank, *colon;
    ngx_str_t   host;

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
        ngx_http_limit_sliding_node_host(node, &host);
    }

    return ngx_http_limit_sliding_cluster_node(node->redis, &host,
                                               ngx_atoi(colon + 1,
                                                        last - (colon + 1)));
}


/* As if it had not been: those who came meanwhile are behind the others. */

static void
ngx_http_limit_sliding_unask(ngx_http_limit_sliding_ask_t *ask)
{
    ngx_queue_t                      *q;
    ngx_http_limit_sliding_waiter_t  *waiter;

    while (!ngx_queue_empty(&ask->asked)) {
        q = ngx_queue_last(&ask->asked);
        ngx_queue_remove(q);
        ngx_queue_insert_head(&ask->waiters, q);

        waiter = ngx_queue_data(q, ngx_http_limit_sliding_waiter_t, queue);
        waiter->asked = 0;
    }

    ask->units += ask->asked_units - ask->leased_units;
    ask->asked_units = 0;
    ask->leased_units = 0;
    ask->in_call = 0;
}


/* What was due at a node that could not be connected to, before it was known
 * who has its slot.  1: another one is tried. */

ngx_uint_t
ngx_http_limit_sliding_redirect_due(ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_node_t *node)
{
    ngx_http_limit_sliding_node_t  *to;

    if (node->redis->cluster == NULL || ask->asking
        || ask->hops >= NGX_HTTP_LIMIT_SLIDING_HOPS)
    {
        return 0;
    }

    to = ngx_http_limit_sliding_route(node->redis, ask->slot);

    if (to == node || !ngx_http_limit_sliding_node_is_usable(to)) {
        return 0;
    }

    if (ask->hops++ == 0) {
        ask->since = ngx_current_msec;
    }

    ngx_http_limit_sliding_make_due(ask, to);

    return 1;
}


/* Holds for the next command only. */

ngx_int_t
ngx_http_limit_sliding_call_asking(ngx_http_limit_sliding_node_t *node)
{
    ngx_http_limit_sliding_call_t  *call;

    static const char    *argv[] = { "ASKING" };
    static const size_t   argvlen[] = { 6 };

    call = ngx_calloc(sizeof(ngx_http_limit_sliding_call_t), ngx_cycle->log);
    if (call == NULL) {
        return NGX_ERROR;
    }

    call->handler = ngx_http_limit_sliding_asking_answered;

    if (ngx_http_limit_sliding_node_command(node, call, 1, argv, argvlen)
        != NGX_OK)
    {
        ngx_free(call);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* If it was refused, so will be what follows. */

static void
ngx_http_limit_sliding_asking_answered(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_call_t *call, ngx_http_limit_sliding_reply_t *reply)
{
    ngx_free(call);
}
