
/*
 * Copyright (C) the limit_sliding authors
 */


/*
 * Commands for one key, which an administrator gives.  Each is an ask of its
 * own: so it waits for a connection, and follows a slot that has moved.
 */


#include "redis/cluster.h"
#include "redis/scripts.h"

#include <hiredis/hiredis.h>


static void ngx_http_limit_sliding_order_answered(
    ngx_http_limit_sliding_node_t *node, ngx_http_limit_sliding_call_t *call,
    ngx_http_limit_sliding_reply_t *reply);


ngx_int_t
ngx_http_limit_sliding_order(limit_sliding_claim_t *claim,
    ngx_http_limit_sliding_order_e what, ngx_str_t *value,
    ngx_http_limit_sliding_waiter_t *waiter)
{
    u_char                           *p;
    ngx_http_limit_sliding_ask_t     *ask;
    ngx_http_limit_sliding_part_t    *part;
    ngx_http_limit_sliding_redis_t   *redis;
    ngx_http_limit_sliding_remote_t  *remote;

    remote = claim->remote;
    redis = remote->zone->redis;

    if (redis->node && !ngx_http_limit_sliding_node_is_usable(redis->node)) {
        return NGX_DECLINED;
    }

    ask = ngx_http_limit_sliding_alloc_ask(redis, 1,
                      remote->zone->prefix.len + ngx_max(remote->key.len, 40)
                      + sizeof("}:limit") + value->len);
    if (ask == NULL) {
        return NGX_DECLINED;
    }

    part = &ask->parts[0];

    ngx_memzero(part, sizeof(ngx_http_limit_sliding_part_t));

    part->claim = *claim;
    part->zone = remote->zone;
    part->key.data = (u_char *) &ask->parts[1];

    p = ngx_http_limit_sliding_write_key(redis, remote, part->key.data);

    if (redis->cluster) {
        part->slot = limit_sliding_cluster_slot(part->key.data,
                                                p - part->key.data);
        ask->slot = part->slot;
    }

    if (what != NGX_HTTP_LIMIT_SLIDING_FORGET) {
        p = ngx_cpymem(p, ":limit", sizeof(":limit") - 1);
    }

    part->key.len = p - part->key.data;

    ask->order = what;
    ask->value.data = p;
    ask->value.len = value->len;
    ngx_memcpy(p, value->data, value->len);

    if (!ngx_http_limit_sliding_is_worth(redis, ask->slot)) {
        ngx_free(ask);
        return NGX_DECLINED;
    }

    ngx_http_limit_sliding_join(redis, ask, waiter);

    return NGX_OK;
}


/* Puts the call of an order into the node's buffer. */

ngx_int_t
ngx_http_limit_sliding_call_order(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_call_t *call)
{
    int                             argc;
    size_t                          len[5];
    u_char                          ms[NGX_INT64_LEN];
    ngx_str_t                      *key;
    const char                     *argv[5];
    ngx_http_limit_sliding_ask_t   *ask;
    ngx_http_limit_sliding_part_t  *part;

    ask = ngx_queue_data(ngx_queue_head(&call->asks),
                         ngx_http_limit_sliding_ask_t, queue);
    part = &ask->parts[0];
    key = &part->key;
    argc = 2;

    argv[0] = "DEL";
    len[0] = 3;
    argv[1] = (char *) key->data;
    len[1] = key->len;

    if (ask->order == NGX_HTTP_LIMIT_SLIDING_SET_LIMIT) {
        argv[0] = "SET";
        argv[2] = (char *) ask->value.data;
        len[2] = ask->value.len;
        argc = 3;

    } else if (ask->order == NGX_HTTP_LIMIT_SLIDING_FORGET
               && limit_sliding_leases_are_of(part->claim.policy))
    {
        /* some node may have leases, if this one has not */

        argv[0] = "EVAL";
        len[0] = 4;
        argv[1] = limit_sliding_forget_script(&len[1]);
        argv[2] = "1";
        len[2] = 1;
        argv[3] = (char *) key->data;
        len[3] = key->len;
        argv[4] = (char *) ms;
        len[4] = ngx_sprintf(ms, "%uL", part->claim.policy->window_ms
                                        + LIMIT_SLIDING_LEASE_MS)
                 - ms;
        argc = 5;
    }

    call->handler = ngx_http_limit_sliding_order_answered;

    if (call->asking && ngx_http_limit_sliding_call_asking(node) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_limit_sliding_node_command(node, call, argc, argv, len);
}


/* The handler of these calls.  An error is an answer, if it is no direction. */

static void
ngx_http_limit_sliding_order_answered(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_call_t *call, ngx_http_limit_sliding_reply_t *reply)
{
    ngx_uint_t                        done;
    ngx_queue_t                      *q;
    ngx_http_limit_sliding_ask_t     *ask;
    ngx_http_limit_sliding_waiter_t  *waiter;

    if (reply == NULL) {
        ngx_http_limit_sliding_call_failed(node, call);
        return;
    }

    done = (reply->type == REDIS_REPLY_INTEGER
            || reply->type == REDIS_REPLY_STATUS);

    if (reply->type == REDIS_REPLY_ERROR) {
        if (node->redis->cluster
            && ngx_http_limit_sliding_redirect(node, call, reply) == NGX_OK)
        {
            return;
        }

        ngx_http_limit_sliding_redis_log(node->redis, 0, "%s",
                                     ngx_http_limit_sliding_reply_text(reply));
    }

    q = ngx_queue_head(&call->asks);
    ngx_queue_remove(q);

    ask = ngx_queue_data(q, ngx_http_limit_sliding_ask_t, queue);

    if (!ngx_queue_empty(&ask->asked)) {
        waiter = ngx_queue_data(ngx_queue_head(&ask->asked),
                                ngx_http_limit_sliding_waiter_t, queue);

        waiter->admitted = done;
        ngx_http_limit_sliding_tell(waiter, NGX_HTTP_LIMIT_SLIDING_TOLD);
    }

    ngx_http_limit_sliding_ask_done(node->redis, ask);

    ngx_free(call);

    if (node->ndue) {
        ngx_post_event(&node->flush, &ngx_posted_events);
    }
}
