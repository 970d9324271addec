/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/call.hpp"

namespace limit_sliding {

namespace {

/* As if it had not been asked: those who came meanwhile are behind the
 * others. */
void unask(Ask &ask)
{
    while (!ask.asked.empty()) {
        Waiter &waiter = ask.asked.pop_back();
        waiter.asked = false;
        ask.waiters.push_front(waiter);
    }

    ask.units += ask.asked_units - ask.leased_units;
    ask.asked_units = 0;
    ask.leased_units = 0;
    ask.in_call = false;
}

} // namespace

void fail_call(Node &node, AskCall &call)
{
    (void)ngx_atomic_fetch_add(&node.redis->client.calls->failed, 1);
    while (!call.asks.empty()) {
        Ask &ask = call.asks.pop_front();
        fail_waiters(ask.asked);
        ask_done(ask);
    }

    end_call(node, call);
}

void end_call(Node &node, AskCall &call)
{
    ngx_free(&call);
    if (node.ndue) {
        node.post_flush();
    }
}

bool resend_call(Node &node, AskCall &call, Reply &reply)
{
    Redis &redis = *node.redis;
    if (!redis.client.nodes.is_cluster()) {
        return false;
    }

    /* in a cluster a call has one ask */
    Ask &ask = call.asks.front();
    Redirect redirect;
    Node *to = redis.client.nodes.redirect(node, ask.slot, reply, &redirect);
    if (to == nullptr || ask.hops >= kHopsMax
        || ngx_current_msec - ask.since >= redis.settings.timeout) {
        return false;
    }

    AskList::remove(ask);
    ngx_free(&call);
    unask(ask);
    ask.hops++;
    ask.asking = redirect == Redirect::kAsk;
    make_due(ask, *to);
    return true;
}

bool resend_due(Ask &ask, Node &node)
{
    Nodes &nodes = node.redis->client.nodes;
    if (!nodes.is_cluster() || ask.asking || ask.hops >= kHopsMax) {
        return false;
    }

    Node *to = nodes.route(ask.slot);
    if (to == &node || !to->is_usable()) {
        return false;
    }

    if (ask.hops++ == 0) {
        ask.since = ngx_current_msec;
    }

    make_due(ask, *to);
    return true;
}

} // namespace limit_sliding
