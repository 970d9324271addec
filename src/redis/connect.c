
/*
 * Copyright (C) the limit_sliding authors
 */


/* From a server's name to a connection that takes commands. */


#include "redis/cluster.h"

#include <hiredis/hiredis.h>


static void ngx_http_limit_sliding_node_resolved(ngx_resolver_ctx_t *ctx);
static void ngx_http_limit_sliding_node_connect(
    ngx_http_limit_sliding_node_t *node);
static void ngx_http_limit_sliding_node_connect_handler(ngx_event_t *ev);
static void ngx_http_limit_sliding_node_connected(
    ngx_http_limit_sliding_node_t *node);
static ngx_int_t ngx_http_limit_sliding_node_auth(
    ngx_http_limit_sliding_node_t *node, ngx_str_t *user,
    ngx_str_t *password);
static void ngx_http_limit_sliding_node_greeted(
    ngx_http_limit_sliding_node_t *node, ngx_http_limit_sliding_call_t *call,
    ngx_http_limit_sliding_reply_t *reply);
static void ngx_http_limit_sliding_node_alive(
    ngx_http_limit_sliding_node_t *node, ngx_http_limit_sliding_call_t *call,
    ngx_http_limit_sliding_reply_t *reply);


/* Names are looked up anew for every connection; nginx knows how long they are
 * valid. */

void
ngx_http_limit_sliding_node_resolve(ngx_http_limit_sliding_node_t *node)
{
    ngx_url_t           *url;
    ngx_resolver_ctx_t  *ctx;

    if (node->redis->topology == NGX_HTTP_LIMIT_SLIDING_SENTINEL
        && !node->found)
    {
        ngx_http_limit_sliding_node_find(node);
    }

    url = &node->server->url;

    if (url->naddrs) {
        ngx_http_limit_sliding_node_connect(node);
        return;
    }

    node->state = NGX_HTTP_LIMIT_SLIDING_RESOLVING;

    ctx = node->redis->resolver
          ? ngx_resolve_start(node->redis->resolver, NULL) : NULL;

    if (ctx == NULL || ctx == NGX_NO_RESOLVER) {
        ngx_http_limit_sliding_redis_log(node->redis, 0, "%V: no resolver",
                                         &node->server->text);
        ngx_http_limit_sliding_node_fail(node, 0, NULL);
        return;
    }

    ctx->name = url->host;
    ctx->handler = ngx_http_limit_sliding_node_resolved;
    ctx->data = node;
    ctx->timeout = node->redis->connect_timeout;

    if (node->naddrs) {
        /* leaves time to try those */
        ctx->timeout /= 2;
    }

    ctx->cancelable = 1;

    node->resolving = ctx;

    if (ngx_resolve_name(ctx) != NGX_OK) {
        /* it has freed the context */
        node->resolving = NULL;
        ngx_http_limit_sliding_node_fail(node, 0, "no resolving");
    }
}


/* What was known before is better than nothing. */

static void
ngx_http_limit_sliding_node_resolved(ngx_resolver_ctx_t *ctx)
{
    ngx_http_limit_sliding_node_t  *node = ctx->data;

    ngx_uint_t  i;

    if (ctx->state) {
        ngx_http_limit_sliding_redis_log(node->redis, 0,
                                         "%V could not be resolved (%i: %s)",
                                         &ctx->name, ctx->state,
                                         ngx_resolver_strerror(ctx->state));

    } else {
        for (i = 0; i < ctx->naddrs
                    && i < NGX_HTTP_LIMIT_SLIDING_ADDRS; i++)
        {
            ngx_memcpy(&node->sockaddrs[i], ctx->addrs[i].sockaddr,
                       ctx->addrs[i].socklen);
            node->socklens[i] = ctx->addrs[i].socklen;

            ngx_inet_set_port(&node->sockaddrs[i].sockaddr,
                              node->server->url.port);
        }

        node->naddrs = i;
    }

    ngx_resolve_name_done(ctx);
    node->resolving = NULL;

    if (node->naddrs == 0) {
        ngx_http_limit_sliding_node_fail(node, 0, NULL);
        return;
    }

    ngx_http_limit_sliding_node_connect(node);
}


static void
ngx_http_limit_sliding_node_connect(ngx_http_limit_sliding_node_t *node)
{
    ngx_int_t               rc;
    ngx_uint_t              i;
    ngx_connection_t       *c;
    ngx_peer_connection_t  *peer;

    node->state = NGX_HTTP_LIMIT_SLIDING_CONNECTING;

    i = node->addr++ % node->naddrs;

    peer = &node->peer;

    ngx_memzero(peer, sizeof(ngx_peer_connection_t));

    peer->sockaddr = &node->sockaddrs[i].sockaddr;
    peer->socklen = node->socklens[i];
    peer->name = &node->server->text;
    peer->get = ngx_event_get_peer;
    peer->log = ngx_cycle->log;
    peer->log_error = NGX_ERROR_INFO;
    peer->so_keepalive = 1;

    rc = ngx_event_connect_peer(peer);

    if (rc == NGX_ERROR || rc == NGX_DECLINED || rc == NGX_BUSY) {
        /* which it has logged */
        ngx_http_limit_sliding_node_fail(node, 0, NULL);
        return;
    }

    c = peer->connection;

    c->data = node;
    c->log = ngx_cycle->log;
    c->read->log = c->log;
    c->write->log = c->log;
    c->read->handler = ngx_http_limit_sliding_node_connect_handler;
    c->write->handler = ngx_http_limit_sliding_node_connect_handler;

    c->pool = ngx_create_pool(512, c->log);

    node->reader = ngx_http_limit_sliding_reader_create(&node->reply);

    if (c->pool == NULL || node->reader == NULL) {
        ngx_http_limit_sliding_node_fail(node, 0, "no memory");
        return;
    }

    if (rc == NGX_OK) {
        ngx_http_limit_sliding_node_connected(node);
    }
}


static void
ngx_http_limit_sliding_node_connect_handler(ngx_event_t *ev)
{
    ngx_connection_t  *c = ev->data;

    int                             err;
    socklen_t                       len;
    ngx_http_limit_sliding_node_t  *node;

    node = c->data;

    if (c->close) {
        ngx_http_limit_sliding_node_leave(node);
        return;
    }

    err = 0;
    len = sizeof(int);

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1) {
        err = ngx_socket_errno;
    }

    if (err) {
        ngx_http_limit_sliding_node_fail(node, err, "connect() failed");
        return;
    }

    ngx_http_limit_sliding_node_connected(node);
}


static void
ngx_http_limit_sliding_node_connected(ngx_http_limit_sliding_node_t *node)
{
    ngx_connection_t  *c;

    c = node->peer.connection;

    if (node->peer.sockaddr->sa_family != AF_UNIX
        && ngx_tcp_nodelay(c) != NGX_OK)
    {
        ngx_http_limit_sliding_node_fail(node, 0, "setsockopt() failed");
        return;
    }

    if (node->redis->ssl) {
        node->state = NGX_HTTP_LIMIT_SLIDING_HANDSHAKING;
        ngx_http_limit_sliding_node_handshake(node);
        return;
    }

    ngx_http_limit_sliding_node_greet(node);
}


/* The first commands.  Nothing else is sent until they have succeeded. */

void
ngx_http_limit_sliding_node_greet(ngx_http_limit_sliding_node_t *node)
{
    u_char                           number[NGX_INT_T_LEN];
    ngx_str_t                        args[3];
    ngx_connection_t                *c;
    ngx_http_limit_sliding_redis_t  *redis;

    redis = node->redis;
    c = node->peer.connection;

    c->read->handler = ngx_http_limit_sliding_node_read_handler;
    c->write->handler = ngx_http_limit_sliding_node_write_handler;

    node->state = NGX_HTTP_LIMIT_SLIDING_GREETING;
    node->greetings = 0;

    if (node->finding) {
        if (ngx_http_limit_sliding_node_auth(node, &redis->sentinel_user,
                                             &redis->sentinel_password)
            == NGX_OK)
        {
            ngx_http_limit_sliding_node_ask_master(node);
        }

        return;
    }

    if (ngx_http_limit_sliding_node_auth(node, &redis->user, &redis->password)
        != NGX_OK)
    {
        return;
    }

    if (redis->database) {
        ngx_str_set(&args[0], "SELECT");
        args[1].data = number;
        args[1].len = ngx_sprintf(number, "%ui", redis->database) - number;

        if (ngx_http_limit_sliding_node_greeting(node, 2, args,
                                         ngx_http_limit_sliding_node_greeted)
            != NGX_OK)
        {
            return;
        }
    }

    if (redis->cluster && node->failures >= NGX_HTTP_LIMIT_SLIDING_FAILURES) {

        /* it may hang; this is a command that the script needs as well */

        ngx_str_set(&args[0], "TIME");

        if (ngx_http_limit_sliding_node_greeting(node, 1, args,
                                         ngx_http_limit_sliding_node_alive)
            != NGX_OK)
        {
            return;
        }
    }

    if (redis->cluster
        && ngx_http_limit_sliding_map_greeting(node) != NGX_OK)
    {
        return;
    }

    if (node->greetings == 0) {
        ngx_http_limit_sliding_node_ready(node);
        return;
    }

    ngx_http_limit_sliding_node_send(node);
}


/* NGX_OK also if there is nothing to authenticate with. */

static ngx_int_t
ngx_http_limit_sliding_node_auth(ngx_http_limit_sliding_node_t *node,
    ngx_str_t *user, ngx_str_t *password)
{
    int        n;
    ngx_str_t  args[3];

    if (user->len == 0 && password->len == 0) {
        return NGX_OK;
    }

    ngx_str_set(&args[0], "AUTH");
    n = 1;

    if (user->len) {
        args[n++] = *user;
    }

    args[n++] = *password;

    return ngx_http_limit_sliding_node_greeting(node, n, args,
                                         ngx_http_limit_sliding_node_greeted);
}


ngx_int_t
ngx_http_limit_sliding_node_greeting(ngx_http_limit_sliding_node_t *node,
    int argc, ngx_str_t *args, ngx_http_limit_sliding_reply_handler_pt handler)
{
    int                             i;
    size_t                          argvlen[3];
    const char                     *argv[3];
    ngx_http_limit_sliding_call_t  *call;

    for (i = 0; i < argc; i++) {
        argv[i] = (char *) args[i].data;
        argvlen[i] = args[i].len;
    }

    call = ngx_calloc(sizeof(ngx_http_limit_sliding_call_t), ngx_cycle->log);

    if (call) {
        call->handler = handler;
    }

    if (call == NULL
        || ngx_http_limit_sliding_node_command(node, call, argc, argv, argvlen)
           != NGX_OK)
    {
        ngx_free(call);
        ngx_http_limit_sliding_node_fail(node, 0, "no memory");
        return NGX_ERROR;
    }

    node->greetings++;

    return NGX_OK;
}


static void
ngx_http_limit_sliding_node_greeted(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_call_t *call, ngx_http_limit_sliding_reply_t *reply)
{
    ngx_free(call);

    if (reply == NULL) {
        return;
    }

    if (reply->type != REDIS_REPLY_STATUS) {
        ngx_http_limit_sliding_node_blame(node, reply);
        return;
    }

    if (--node->greetings == 0) {
        ngx_http_limit_sliding_node_ready(node);
    }
}


/* It answers, be it with an error: requests may wait for it.  How long it is
 * left alone if it fails once more is as before. */

static void
ngx_http_limit_sliding_node_alive(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_call_t *call, ngx_http_limit_sliding_reply_t *reply)
{
    ngx_free(call);

    if (reply == NULL) {
        return;
    }

    node->failures = NGX_HTTP_LIMIT_SLIDING_FAILURES - 1;

    if (--node->greetings == 0) {
        ngx_http_limit_sliding_node_ready(node);
    }
}


void
ngx_http_limit_sliding_node_disconnect(ngx_http_limit_sliding_node_t *node)
{
    ngx_pool_t        *pool;
    ngx_connection_t  *c;

    node->broken = NULL;
    node->out_sent = 0;
    node->out_last = 0;

    if (node->reader) {
        ngx_http_limit_sliding_reader_free(node->reader);
        node->reader = NULL;
    }

    c = node->peer.connection;

    if (c == NULL) {
        return;
    }

    node->peer.connection = NULL;

#if (NGX_HTTP_SSL)
    if (c->ssl) {
        c->ssl->no_wait_shutdown = 1;
        c->ssl->no_send_shutdown = 1;
        (void) ngx_ssl_shutdown(c);
    }
#endif

    pool = c->pool;

    ngx_close_connection(c);

    if (pool) {
        ngx_destroy_pool(pool);
    }
}
