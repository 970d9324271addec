
/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * Commands for one key, which an administrator gives.  Each is an ask of its
 * own: so it waits for a connection, and follows a slot that has moved.
 */

#include "redis/key_command.hpp"
#include "ngx/ngx.hpp"
#include "redis/batch.hpp"
#include "redis/deliver.hpp"
#include "redis/resend.hpp"
#include "redis/scripts.hpp"

#include <hiredis/hiredis.h>

namespace limit_sliding {

static void order_answered(Node &node, Call &call, Reply *reply);

ngx_int_t send_key_command(Claim *claim, KeyCommand what, ngx_str_t *value,
                           Waiter *waiter)
{
    u_char *p;
    Ask *ask;
    AskPart *part;
    Redis *redis;
    RemoteClaim *remote;

    remote = claim->remote;
    redis = remote->zone->redis;

    if (redis->client.nodes.is_away()) {
        return NGX_DECLINED;
    }

    ask = alloc_ask(redis, 1,
                    remote->zone->prefix.len + ngx_max(remote->key.len, 40)
                        + sizeof("}:limit") + value->len);
    if (ask == NULL) {
        return NGX_DECLINED;
    }

    part = &ask->parts[0];

    ngx_memzero(part, sizeof(AskPart));

    part->claim = *claim;
    part->zone = remote->zone;
    part->key.data = (u_char *)&ask->parts[1];

    p = write_key(redis, remote, part->key.data);

    if (redis->client.nodes.is_cluster()) {
        part->slot
            = limit_sliding::cluster_slot(part->key.data, p - part->key.data);
        ask->slot = part->slot;
    }

    if (what != KeyCommand::kForget) {
        p = ngx_cpymem(p, ":limit", sizeof(":limit") - 1);
    }

    part->key.len = p - part->key.data;

    ask->order = what;
    ask->value.data = p;
    ask->value.len = value->len;
    ngx_memcpy(p, value->data, value->len);

    if (!redis->client.nodes.is_worth(ask->slot)) {
        ngx_free(ask);
        return NGX_DECLINED;
    }

    join_ask(redis, ask, waiter);

    return NGX_OK;
}

/* Puts the call of an order into the node's buffer. */

ngx_int_t call_order(Node *node, AskCall *call)
{
    int argc;
    size_t len[5];
    u_char ms[NGX_INT64_LEN];
    ngx_str_t *key;
    const char *argv[5];
    Ask *ask;
    AskPart *part;

    ask = ngx_queue_data(ngx_queue_head(&call->asks), Ask, queue);
    part = &ask->parts[0];
    key = &part->key;
    argc = 2;

    argv[0] = "DEL";
    len[0] = 3;
    argv[1] = (char *)key->data;
    len[1] = key->len;

    if (ask->order == KeyCommand::kSetLimit) {
        argv[0] = "SET";
        argv[2] = (char *)ask->value.data;
        len[2] = ask->value.len;
        argc = 3;

    } else if (ask->order == KeyCommand::kForget
               && limit_sliding::leases_are_of(part->claim.policy)) {
        /* some node may have leases, if this one has not */

        argv[0] = "EVAL";
        len[0] = 4;
        argv[1] = limit_sliding::forget_script(&len[1]);
        argv[2] = "1";
        len[2] = 1;
        argv[3] = (char *)key->data;
        len[3] = key->len;
        argv[4] = (char *)ms;
        len[4]
            = ngx_sprintf(ms, "%uL", part->claim.policy->window_ms + kLeaseMs)
              - ms;
        argc = 5;
    }

    call->handler = order_answered;

    if (call->asking && send_asking(*node) != NGX_OK) {
        return NGX_ERROR;
    }

    return node->command(*call, argc, argv, len);
}

/* The handler of these calls.  An error is an answer, if it is no direction. */

static void order_answered(Node &from, Call &base, Reply *reply)
{
    Node *node = &from;
    auto *call = static_cast<AskCall *>(&base);

    ngx_uint_t done;
    ngx_queue_t *q;
    Ask *ask;
    Waiter *waiter;

    if (reply == NULL) {
        call_failed(node, call);
        return;
    }

    done = (reply->type == REDIS_REPLY_INTEGER
            || reply->type == REDIS_REPLY_STATUS);

    if (reply->type == REDIS_REPLY_ERROR) {
        if (node->redis->client.nodes.is_cluster()
            && redirect_call(node, call, reply) == NGX_OK) {
            return;
        }

        node->log->write(0, "%s", reply_text(reply));
    }

    q = ngx_queue_head(&call->asks);
    ngx_queue_remove(q);

    ask = ngx_queue_data(q, Ask, queue);

    if (!ngx_queue_empty(&ask->asked)) {
        waiter = ngx_queue_data(ngx_queue_head(&ask->asked), Waiter, queue);

        waiter->admitted = done;
        tell_waiter(waiter, Told::kTold);
    }

    ask_done(node->redis, ask);

    ngx_free(call);

    if (node->ndue) {
        node->post_flush();
    }
}

} // namespace limit_sliding
