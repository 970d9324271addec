
/*
 * Copyright (C) the limit_sliding authors
 */


/* What is due at a node, and the calls that carry it. */


#include "redis/cluster.h"


/*
 * So many calls under way before others wait to be filled: while Redis is busy
 * one call of many asks costs it less than many calls.
 */

#define NGX_HTTP_LIMIT_SLIDING_CALLS  4


static void ngx_http_limit_sliding_reroute(
    ngx_http_limit_sliding_node_t *node);
static ngx_int_t ngx_http_limit_sliding_call(
    ngx_http_limit_sliding_node_t *node);
static ngx_uint_t ngx_http_limit_sliding_take_waiters(
    ngx_http_limit_sliding_ask_t *ask);


/* Posted: sends what is due in this turn of the event loop. */

void
ngx_http_limit_sliding_flush(ngx_event_t *ev)
{
    ngx_http_limit_sliding_node_t  *node = ev->data;

    if (node->redis->cluster) {
        ngx_http_limit_sliding_reroute(node);
    }

    if (node->ndue == 0 && node->out_last == 0) {
        return;
    }

    switch (ngx_http_limit_sliding_node_open(node)) {

    case NGX_OK:
        break;

    case NGX_AGAIN:
        return;

    default:
        ngx_http_limit_sliding_fail_due(node);
        return;
    }

    while (node->ndue >= NGX_HTTP_LIMIT_SLIDING_ASKS
           || (node->ndue && (node->redis->cluster
                              || node->ncalls < NGX_HTTP_LIMIT_SLIDING_CALLS)))
    {
        if (ngx_http_limit_sliding_call(node) != NGX_OK) {
            ngx_http_limit_sliding_node_fail(node, 0, "no memory");
            return;
        }
    }

    ngx_http_limit_sliding_node_send(node);

    if (node->redis->watch) {
        ngx_http_limit_sliding_watch(node->redis);
    }
}


/* To where their slots have moved, or are known to be by now. */

static void
ngx_http_limit_sliding_reroute(ngx_http_limit_sliding_node_t *node)
{
    ngx_queue_t                    *q, *next;
    ngx_http_limit_sliding_ask_t   *ask;
    ngx_http_limit_sliding_node_t  *to;

    for (q = ngx_queue_head(&node->due);
         q != ngx_queue_sentinel(&node->due);
         q = next)
    {
        next = ngx_queue_next(q);

        ask = ngx_queue_data(q, ngx_http_limit_sliding_ask_t, queue);

        if (ask->asking) {
            continue;
        }

        to = ngx_http_limit_sliding_route(node->redis, ask->slot);

        if (to != node) {
            ngx_queue_remove(q);
            node->ndue--;
            ngx_http_limit_sliding_make_due(ask, to);
        }
    }
}


static ngx_int_t
ngx_http_limit_sliding_call(ngx_http_limit_sliding_node_t *node)
{
    ngx_int_t                       rc;
    ngx_queue_t                    *q;
    ngx_http_limit_sliding_ask_t   *ask;
    ngx_http_limit_sliding_call_t  *call;

    call = ngx_calloc(sizeof(ngx_http_limit_sliding_call_t), ngx_cycle->log);
    if (call == NULL) {
        return NGX_ERROR;
    }

    call->handler = ngx_http_limit_sliding_answered;
    ngx_queue_init(&call->asks);

    while (!ngx_queue_empty(&node->due)) {
        q = ngx_queue_head(&node->due);
        ask = ngx_queue_data(q, ngx_http_limit_sliding_ask_t, queue);

        if (!ngx_http_limit_sliding_call_fits(call, ask)) {
            break;
        }

        ngx_queue_remove(q);
        node->ndue--;
        ngx_queue_insert_tail(&call->asks, q);

        call->numbers += ngx_http_limit_sliding_take_waiters(ask);

        call->asking = ask->asking;
        ask->asking = 0;
    }

    rc = call->order ? ngx_http_limit_sliding_call_order(node, call)
                     : ngx_http_limit_sliding_call_script(node, call);

    if (rc == NGX_OK) {
        return NGX_OK;
    }

    call->handler(node, call, NULL);

    return NGX_ERROR;
}


/*
 * Units that nobody waits for any more come after those of who does.  Returns
 * how many values the reply has beyond those of the algorithms.
 */

static ngx_uint_t
ngx_http_limit_sliding_take_waiters(ngx_http_limit_sliding_ask_t *ask)
{
    ngx_uint_t                        turn;
    ngx_queue_t                      *q;
    ngx_http_limit_sliding_waiter_t  *waiter;

    turn = 0;

    while (!ngx_queue_empty(&ask->waiters)) {
        q = ngx_queue_head(&ask->waiters);
        ngx_queue_remove(q);
        ngx_queue_insert_tail(&ask->asked, q);

        waiter = ngx_queue_data(q, ngx_http_limit_sliding_waiter_t, queue);
        waiter->asked = 1;
        waiter->turn = turn++;
    }

    if (ask->hops == 0) {
        ask->since = ngx_current_msec;
    }

    ask->asked_units = ask->units;
    ask->units = 0;
    ask->in_call = 1;

    return ngx_http_limit_sliding_lease_ask(ask);
}


void
ngx_http_limit_sliding_make_due(ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_node_t *to)
{
    ask->to = to;
    ngx_queue_insert_tail(&to->due, &ask->queue);
    to->ndue++;

    ngx_post_event(&to->flush, &ngx_posted_events);
}


/* What waits for a connection waits in vain. */

void
ngx_http_limit_sliding_fail_due(ngx_http_limit_sliding_node_t *node)
{
    ngx_queue_t                   *q;
    ngx_http_limit_sliding_ask_t  *ask;

    while (!ngx_queue_empty(&node->due)) {
        q = ngx_queue_head(&node->due);
        ngx_queue_remove(q);
        node->ndue--;

        ask = ngx_queue_data(q, ngx_http_limit_sliding_ask_t, queue);

        if (ngx_http_limit_sliding_redirect_due(ask, node)) {
            continue;
        }

        ask->units = 0;
        ngx_http_limit_sliding_fail_waiters(&ask->waiters);
        ngx_http_limit_sliding_ask_done(node->redis, ask);
    }
}
