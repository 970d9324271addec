
/*
 * Copyright (C) the limit_sliding authors
 */

/* From a server's name to a connection that takes commands. */

#include "ngx/ngx.hpp"
#include "redis/cluster.hpp"
#include "redis/tls.hpp"

#include <hiredis/hiredis.h>

namespace limit_sliding {

static void node_resolved(ngx_resolver_ctx_t *ctx);
static void node_connect(Node *node);
static void node_connect_handler(ngx_event_t *ev);
static void node_connected(Node *node);
static ngx_int_t node_auth(Node *node, const Credentials &credentials);
static void node_greeted(Node &node, Call &call, Reply *reply);
static void node_alive(Node &node, Call &call, Reply *reply);

/* Names are looked up anew for every connection; nginx knows how long they are
 * valid. */

void node_resolve(Node *node)
{
    ngx_url_t *url;
    ngx_resolver_ctx_t *ctx;

    if (node->settings->topology == Topology::kSentinel && !node->found) {
        node_find(node);
    }

    url = &node->server->url;

    if (url->naddrs) {
        node_connect(node);
        return;
    }

    node->state = NodeState::kResolving;

    ctx = node->settings->resolver
              ? ngx_resolve_start(node->settings->resolver, NULL)
              : NULL;

    if (ctx == NULL || ctx == NGX_NO_RESOLVER) {
        node->log->write(0, "%V: no resolver", &node->server->text);
        node->fail(0, NULL);
        return;
    }

    ctx->name = url->host;
    ctx->handler = node_resolved;
    ctx->data = node;
    ctx->timeout = node->settings->connect_timeout;

    if (node->naddrs) {
        /* leaves time to try those */
        ctx->timeout /= 2;
    }

    ctx->cancelable = 1;

    node->resolving = ctx;

    if (ngx_resolve_name(ctx) != NGX_OK) {
        /* it has freed the context */
        node->resolving = NULL;
        node->fail(0, "no resolving");
    }
}

/* What was known before is better than nothing. */

static void node_resolved(ngx_resolver_ctx_t *ctx)
{
    Node *node = ctx->data;

    ngx_uint_t i;

    if (ctx->state) {
        node->log->write(0, "%V could not be resolved (%i: %s)", &ctx->name,
                         ctx->state, ngx_resolver_strerror(ctx->state));

    } else {
        for (i = 0; i < ctx->naddrs && i < kAddressesMax; i++) {
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
        node->fail(0, NULL);
        return;
    }

    node_connect(node);
}

static void node_connect(Node *node)
{
    ngx_int_t rc;
    ngx_uint_t i;
    ngx_connection_t *c;
    ngx_peer_connection_t *peer;

    node->state = NodeState::kConnecting;

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
        node->fail(0, NULL);
        return;
    }

    c = peer->connection;

    c->data = node;
    c->log = ngx_cycle->log;
    c->read->log = c->log;
    c->write->log = c->log;
    c->read->handler = node_connect_handler;
    c->write->handler = node_connect_handler;

    c->pool = ngx_create_pool(512, c->log);

    node->reader = reader_create(&node->reply);

    if (c->pool == NULL || node->reader == NULL) {
        node->fail(0, "no memory");
        return;
    }

    if (rc == NGX_OK) {
        node_connected(node);
    }
}

static void node_connect_handler(ngx_event_t *ev)
{
    ngx_connection_t *c = ev->data;

    int err;
    socklen_t len;
    Node *node;

    node = c->data;

    if (c->close) {
        node_leave(node);
        return;
    }

    err = 0;
    len = sizeof(int);

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *)&err, &len) == -1) {
        err = ngx_socket_errno;
    }

    if (err) {
        node->fail(err, "connect() failed");
        return;
    }

    node_connected(node);
}

static void node_connected(Node *node)
{
    ngx_connection_t *c;

    c = node->peer.connection;

    if (node->peer.sockaddr->sa_family != AF_UNIX
        && ngx_tcp_nodelay(c) != NGX_OK) {
        node->fail(0, "setsockopt() failed");
        return;
    }

    if (node->settings->tls.on) {
        node->state = NodeState::kHandshaking;
        node_handshake(node);
        return;
    }

    node_greet(node);
}

/* The first commands.  Nothing else is sent until they have succeeded. */

void node_greet(Node *node)
{
    u_char number[NGX_INT_T_LEN];
    ngx_str_t args[3];
    ngx_connection_t *c;
    auto *settings = node->settings;
    c = node->peer.connection;

    c->read->handler = node_read_handler;
    c->write->handler = node_write_handler;

    node->state = NodeState::kGreeting;
    node->greetings = 0;

    if (node->finding) {
        if (node_auth(node, settings->sentinel.credentials) == NGX_OK) {
            node_ask_master(node);
        }

        return;
    }

    if (node_auth(node, settings->credentials) != NGX_OK) {
        return;
    }

    if (settings->database) {
        ngx_str_set(&args[0], "SELECT");
        args[1].data = number;
        args[1].len = ngx_sprintf(number, "%ui", settings->database) - number;

        if (node_greeting(node, 2, args, node_greeted) != NGX_OK) {
            return;
        }
    }

    if (node->nodes->cluster && node->failures >= kFailuresMax) {

        /* it may hang; this is a command that the script needs as well */

        ngx_str_set(&args[0], "TIME");

        if (node_greeting(node, 1, args, node_alive) != NGX_OK) {
            return;
        }
    }

    if (node->nodes->cluster && map_greeting(node) != NGX_OK) {
        return;
    }

    if (node->greetings == 0) {
        node_ready(node);
        return;
    }

    node->send();
}

/* NGX_OK also if there is nothing to authenticate with. */

static ngx_int_t node_auth(Node *node, const Credentials &credentials)
{
    auto *user = &credentials.user;
    auto *password = &credentials.password;
    int n;
    ngx_str_t args[3];

    if (user->len == 0 && password->len == 0) {
        return NGX_OK;
    }

    ngx_str_set(&args[0], "AUTH");
    n = 1;

    if (user->len) {
        args[n++] = *user;
    }

    args[n++] = *password;

    return node_greeting(node, n, args, node_greeted);
}

ngx_int_t node_greeting(Node *node, int argc, ngx_str_t *args,
                        ReplyHandler handler)
{
    int i;
    size_t argvlen[3];
    const char *argv[3];
    Call *call;

    for (i = 0; i < argc; i++) {
        argv[i] = (char *)args[i].data;
        argvlen[i] = args[i].len;
    }

    call = ngx_calloc(sizeof(Call), ngx_cycle->log);

    if (call) {
        call->handler = handler;
    }

    if (call == NULL || node->command(*call, argc, argv, argvlen) != NGX_OK) {
        ngx_free(call);
        node->fail(0, "no memory");
        return NGX_ERROR;
    }

    node->greetings++;

    return NGX_OK;
}

static void node_greeted(Node &from, Call &call, Reply *reply)
{
    Node *node = &from;

    ngx_free(&call);

    if (reply == NULL) {
        return;
    }

    if (reply->type != REDIS_REPLY_STATUS) {
        node->blame(*reply);
        return;
    }

    if (--node->greetings == 0) {
        node_ready(node);
    }
}

/* It answers, be it with an error: requests may wait for it.  How long it is
 * left alone if it fails once more is as before. */

static void node_alive(Node &from, Call &call, Reply *reply)
{
    Node *node = &from;

    ngx_free(&call);

    if (reply == NULL) {
        return;
    }

    node->failures = kFailuresMax - 1;

    if (--node->greetings == 0) {
        node_ready(node);
    }
}

void node_disconnect(Node *node)
{
    ngx_pool_t *pool;
    ngx_connection_t *c;

    node->broken = NULL;
    node->out_sent = 0;
    node->out_last = 0;

    if (node->reader) {
        reader_free(node->reader);
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
        (void)ngx_ssl_shutdown(c);
    }
#endif

    pool = c->pool;

    ngx_close_connection(c);

    if (pool) {
        ngx_destroy_pool(pool);
    }
}

} // namespace limit_sliding
