
/*
 * Copyright (C) the limit_sliding authors
 */

/* An ask that did not run where it was sent to is due elsewhere: so often, and
 * so long, that whoever waits for it still does. */

#include "redis/resend.hpp"

namespace limit_sliding {

static void unask(Ask *ask);

ngx_int_t redirect_call(Node *node, AskCall *call, Reply *reply)
{
    ngx_queue_t *q;
    Ask *ask;
    Node *to;
    Redirect direction;

    /* a call is of one ask */

    q = ngx_queue_head(&call->asks);
    ask = ngx_queue_data(q, Ask, queue);

    to = node->redis->client.nodes.redirect(*node, ask->slot, *reply,
                                            &direction);

    if (to == NULL || ask->hops >= kHopsMax
        || ngx_current_msec - ask->since >= node->redis->settings.timeout) {
        return NGX_DECLINED;
    }

    ask->hops++;

    ngx_queue_remove(q);
    ngx_free(call);

    unask(ask);

    ask->asking = (direction == Redirect::kAsk);
    make_due(ask, to);

    return NGX_OK;
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

    if (!node->redis->client.nodes.is_cluster() || ask->asking
        || ask->hops >= kHopsMax) {
        return 0;
    }

    to = node->redis->client.nodes.route(ask->slot);

    if (to == node || !to->is_usable()) {
        return 0;
    }

    if (ask->hops++ == 0) {
        ask->since = ngx_current_msec;
    }

    make_due(ask, to);

    return 1;
}

} // namespace limit_sliding
