
/*
 * Copyright (C) the limit_sliding authors
 */


/* Commands for one key, which an administrator gives. */


#include "ngx_http_limit_sliding_redis_cluster.h"

#include <hiredis/hiredis.h>


static void ngx_http_limit_sliding_order_told(
    ngx_http_limit_sliding_node_t *node, ngx_http_limit_sliding_call_t *call,
    ngx_http_limit_sliding_reply_t *reply);


ngx_int_t
ngx_http_limit_sliding_order(ngx_http_limit_sliding_remote_t *remote,
    ngx_http_limit_sliding_order_e what, ngx_str_t *value,
    ngx_http_limit_sliding_order_t *order)
{
    size_t                            len[3];
    u_char                           *key, *p;
    ngx_int_t                         rc;
    const char                       *argv[3];
    ngx_http_limit_sliding_call_t    *call;
    ngx_http_limit_sliding_node_t    *node;
    ngx_http_limit_sliding_redis_t   *redis;

    redis = remote->zone->redis;

    if (redis->node == NULL && redis->cluster == NULL) {
        return NGX_DECLINED;
    }

    call = ngx_calloc(sizeof(ngx_http_limit_sliding_call_t), ngx_cycle->log);
    if (call == NULL) {
        return NGX_DECLINED;
    }

    key = ngx_alloc(remote->zone->prefix.len + ngx_max(remote->key.len, 40)
                    + sizeof("}:limit"), ngx_cycle->log);
    if (key == NULL) {
        ngx_free(call);
        return NGX_DECLINED;
    }

    p = ngx_http_limit_sliding_write_key(redis, remote, key);

    node = ngx_http_limit_sliding_route(redis,
                                    limit_sliding_cluster_slot(key, p - key));

    if (node == NULL || node->state != NGX_HTTP_LIMIT_SLIDING_READY) {
        ngx_free(key);
        ngx_free(call);
        return NGX_DECLINED;
    }

    if (what != NGX_HTTP_LIMIT_SLIDING_FORGET) {
        p = ngx_cpymem(p, ":limit", sizeof(":limit") - 1);
    }

    argv[0] = (what == NGX_HTTP_LIMIT_SLIDING_SET_LIMIT) ? "SET" : "DEL";
    len[0] = 3;
    argv[1] = (char *) key;
    len[1] = p - key;

    if (what == NGX_HTTP_LIMIT_SLIDING_SET_LIMIT) {
        argv[2] = (char *) value->data;
        len[2] = value->len;
    }

    ngx_queue_init(&call->asks);
    call->handler = ngx_http_limit_sliding_order_told;
    call->data = order;

    rc = ngx_http_limit_sliding_node_command(node, call,
                         what == NGX_HTTP_LIMIT_SLIDING_SET_LIMIT ? 3 : 2,
                         argv, len);

    ngx_free(key);

    if (rc != NGX_OK) {
        ngx_free(call);
        return NGX_DECLINED;
    }

    order->call = call;
    order->done = 0;

    ngx_post_event(&node->flush, &ngx_posted_events);

    return NGX_OK;
}


/* The handler of these calls. */

static void
ngx_http_limit_sliding_order_told(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_call_t *call, ngx_http_limit_sliding_reply_t *reply)
{
    ngx_http_limit_sliding_order_t  *order;

    order = call->data;

    if (reply && reply->type == REDIS_REPLY_ERROR) {
        ngx_http_limit_sliding_redis_log(node->redis, 0, "%s",
                                     ngx_http_limit_sliding_reply_text(reply));
    }

    if (order) {
        order->done = (reply
                       && (reply->type == REDIS_REPLY_INTEGER
                           || reply->type == REDIS_REPLY_STATUS));
        order->call = NULL;

        ngx_post_event(&order->event, &ngx_posted_events);
    }

    ngx_free(call);

    if (node->ndue) {
        ngx_post_event(&node->flush, &ngx_posted_events);
    }
}


void
ngx_http_limit_sliding_leave_order(ngx_http_limit_sliding_order_t *order)
{
    if (order->call) {
        order->call->data = NULL;
        order->call = NULL;
    }

    if (order->event.posted) {
        ngx_delete_posted_event(&order->event);
    }
}
