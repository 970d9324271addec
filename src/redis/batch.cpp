/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/batch.hpp"

#include "redis/deliver.hpp"
#include "redis/key_command.hpp"
#include "redis/lease_units.hpp"
#include "redis/script_call.hpp"

namespace limit_sliding {

namespace {

/* So many calls may be under way before others wait to be filled: while Redis
 * is busy one call of many asks costs it less than many calls. */
constexpr auto kCallsUnderWay = 4;

/* Sends asks to where their slots have moved, or are known to be by now. */
void reroute(Node &node)
{
    for (Ask &ask : due_at(node)) {
        Node *to = node.redis->client.nodes.route(ask.slot);
        if (to != &node && !ask.asking) {
            remove_due(ask);
            make_due(ask, *to);
        }
    }
}

/*
 * Makes the waiters and units of the ask those of a call.  Units that nobody
 * waits for any more come after those of who does.  Returns how many values the
 * reply has beyond those of the algorithms.
 */
size_t take_waiters(Ask &ask)
{
    ngx_uint_t turn = 0;
    while (!ask.waiters.empty()) {
        Waiter &waiter = ask.waiters.pop_front();
        ask.asked.push_back(waiter);
        waiter.asked = true;
        waiter.turn = turn++;
    }

    if (ask.hops == 0) {
        ask.since = ngx_current_msec;
    }

    ask.asked_units = ask.units;
    ask.units = 0;
    ask.in_call = true;
    return take_leases(ask);
}

/* Puts a call of what is due into the node's buffer.  NGX_ERROR: there is no
 * memory. */
ngx_int_t send_call(Node &node)
{
    auto *call = create_call<AskCall>(script_answered);
    if (call == nullptr) {
        return NGX_ERROR;
    }

    call->asks.init();
    for (Ask &ask : due_at(node)) {
        if (!call_takes(*call, ask)) {
            break;
        }

        remove_due(ask);
        call->asks.push_back(ask);
        call->numbers += take_waiters(ask);
        call->asking = ask.asking;
        ask.asking = false;
    }

    ngx_int_t rc = call->command ? call_key_command(node, *call)
                                 : call_script(node, *call);

    if (rc != NGX_OK) {
        call->handler(node, *call, nullptr);
    }
    return rc;
}

} // namespace

void flush_due(Node &node)
{
    Nodes &nodes = node.redis->client.nodes;
    if (nodes.is_cluster()) {
        reroute(node);
    }

    if (node.ndue == 0 && !node.has_unsent()) {
        return;
    }

    ngx_int_t rc = node.open();
    if (rc == NGX_AGAIN) {
        return;
    }

    if (rc != NGX_OK) {
        fail_due(node);
        return;
    }

    while (node.ndue >= kAsksPerCall
           || (node.ndue
               && (nodes.is_cluster() || node.ncalls < kCallsUnderWay))) {
        if (send_call(node) != NGX_OK) {
            node.fail(0, "no memory");
            return;
        }
    }

    node.send();
    nodes.sent();
}

void fail_due(Node &node)
{
    for (Ask &ask : due_at(node)) {
        remove_due(ask);
        if (resend_due(ask, node)) {
            continue;
        }

        ask.units = 0;
        fail_waiters(ask.waiters);
        ask_done(ask);
    }
}

} // namespace limit_sliding
