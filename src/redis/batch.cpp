
/*
 * Copyright (C) the limit_sliding authors
 */

/* What is due at a node, and the calls that carry it. */

#include "redis/batch.hpp"
#include "ngx/ngx.hpp"
#include "redis/deliver.hpp"
#include "redis/key_command.hpp"
#include "redis/lease_units.hpp"
#include "redis/resend.hpp"
#include "redis/script_call.hpp"

namespace limit_sliding {

/*
 * So many calls under way before others wait to be filled: while Redis is busy
 * one call of many asks costs it less than many calls.
 */

constexpr auto kCallsUnderWay = 4;

static void reroute(Node *node);
static ngx_int_t send_call(Node *node);
static ngx_uint_t take_waiters(Ask *ask);

/* Posted: sends what is due in this turn of the event loop. */

void flush_due(Node &to)
{
    Node *node = &to;

    if (node->redis->client.nodes.is_cluster()) {
        reroute(node);
    }

    if (node->ndue == 0 && !node->has_unsent()) {
        return;
    }

    switch (node->open()) {

    case NGX_OK:
        break;

    case NGX_AGAIN:
        return;

    default:
        fail_due(*node);
        return;
    }

    while (node->ndue >= kAsksPerCall
           || (node->ndue
               && (node->redis->client.nodes.is_cluster()
                   || node->ncalls < kCallsUnderWay))) {
        if (send_call(node) != NGX_OK) {
            node->fail(0, "no memory");
            return;
        }
    }

    node->send();

    node->redis->client.nodes.sent();
}

/* To where their slots have moved, or are known to be by now. */

static void reroute(Node *node)
{
    ngx_queue_t *q, *next;
    Ask *ask;
    Node *to;

    for (q = ngx_queue_head(&node->due); q != ngx_queue_sentinel(&node->due);
         q = next) {
        next = ngx_queue_next(q);

        ask = ngx_queue_data(q, Ask, queue);

        if (ask->asking) {
            continue;
        }

        to = node->redis->client.nodes.route(ask->slot);

        if (to != node) {
            ngx_queue_remove(q);
            node->ndue--;
            make_due(ask, to);
        }
    }
}

static ngx_int_t send_call(Node *node)
{
    ngx_int_t rc;
    ngx_queue_t *q;
    Ask *ask;
    AskCall *call;

    call = ngx_calloc(sizeof(AskCall), ngx_cycle->log);
    if (call == NULL) {
        return NGX_ERROR;
    }

    call->handler = answered;
    ngx_queue_init(&call->asks);

    while (!ngx_queue_empty(&node->due)) {
        q = ngx_queue_head(&node->due);
        ask = ngx_queue_data(q, Ask, queue);

        if (!call_fits(call, ask)) {
            break;
        }

        ngx_queue_remove(q);
        node->ndue--;
        ngx_queue_insert_tail(&call->asks, q);

        call->numbers += take_waiters(ask);

        call->asking = ask->asking;
        ask->asking = 0;
    }

    rc = call->order ? call_order(node, call) : call_script(node, call);

    if (rc == NGX_OK) {
        return NGX_OK;
    }

    call->handler(*node, *call, NULL);

    return NGX_ERROR;
}

/*
 * Units that nobody waits for any more come after those of who does.  Returns
 * how many values the reply has beyond those of the algorithms.
 */

static ngx_uint_t take_waiters(Ask *ask)
{
    ngx_uint_t turn;
    ngx_queue_t *q;
    Waiter *waiter;

    turn = 0;

    while (!ngx_queue_empty(&ask->waiters)) {
        q = ngx_queue_head(&ask->waiters);
        ngx_queue_remove(q);
        ngx_queue_insert_tail(&ask->asked, q);

        waiter = ngx_queue_data(q, Waiter, queue);
        waiter->asked = 1;
        waiter->turn = turn++;
    }

    if (ask->hops == 0) {
        ask->since = ngx_current_msec;
    }

    ask->asked_units = ask->units;
    ask->units = 0;
    ask->in_call = 1;

    return lease_ask(ask);
}

void make_due(Ask *ask, Node *to)
{
    ask->to = to;
    ngx_queue_insert_tail(&to->due, &ask->queue);
    to->ndue++;

    to->post_flush();
}

/* What waits for a connection waits in vain. */

void fail_due(Node &to)
{
    Node *node = &to;

    ngx_queue_t *q;
    Ask *ask;

    while (!ngx_queue_empty(&node->due)) {
        q = ngx_queue_head(&node->due);
        ngx_queue_remove(q);
        node->ndue--;

        ask = ngx_queue_data(q, Ask, queue);

        if (redirect_due(ask, node)) {
            continue;
        }

        ask->units = 0;
        fail_waiters(&ask->waiters);
        ask_done(node->redis, ask);
    }
}

} // namespace limit_sliding
