
/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * topology sentinel: which server is the master is asked for every connection,
 * so that a failover is found out as a broken connection is.  It is asked again
 * every second of traffic, as a master that was replaced may go on for a while.
 */

#include "ngx/ngx.hpp"
#include "redis/cluster.hpp"
#include "redis/tls.hpp"

#include <hiredis/hiredis.h>

namespace limit_sliding {

constexpr auto kWatch = 1000;

static void node_found(Node &node, Call &call, Reply *reply);
static void watched(Node *watch);

/* Turns to the next sentinel; one that fails is tried last. */

void node_find(Node *node)
{
    Server *servers;

    servers = node->settings->servers.elts;

    node->finding = 1;
    node->tries++;

    node_set_server(node,
                    &servers[node->sentinel++ % node->settings->servers.nelts]);
}

/* There is another one to ask, and still time for it. */

ngx_uint_t node_may_find(Node *node)
{
    return node->finding && node->tries < node->settings->servers.nelts
           && node->timer.timer_set;
}

/* Connected to a sentinel. */

void node_ask_master(Node *node)
{
    ngx_str_t args[3];

    ngx_str_set(&args[0], "SENTINEL");
    ngx_str_set(&args[1], "get-master-addr-by-name");
    args[2] = node->settings->sentinel.master;

    if (node_greeting(node, 3, args, node_found) == NGX_OK) {
        node->send();
    }
}

static void node_found(Node &from, Call &call, Reply *reply)
{
    Node *node = &from;

    ngx_free(&call);

    if (reply == NULL) {
        return;
    }

    if (reply->type == REDIS_REPLY_NIL) {
        node->broken = "sentinel knows no such master";
        return;
    }

    if (reply->type != REDIS_REPLY_ARRAY || reply->n != 2
        || node_set_address(
               node, &reply->strings[0],
               ngx_atoi(reply->strings[1].data, reply->strings[1].len))
               != NGX_OK) {
        node->blame(*reply);
        return;
    }

    node->found = 1;
}

/* A sentinel's error as a line to be logged; valid until the next one.  It says
 * whose it is: sentinels have passwords of their own. */

char *sentinel_text(Node *node, Reply *reply)
{
    u_char *last;

    static u_char text[NGX_MAX_ERROR_STR];

    last = ngx_snprintf(text, sizeof(text) - 1, "sentinel %V: %s",
                        &node->server->text, reply_text(reply));
    *last = '\0';

    return (char *)text;
}

/* An address, or a name where sentinels are told to say names. */

ngx_int_t node_set_address(Node *node, ngx_str_t *host, ngx_int_t port)
{
    ngx_url_t *url;
    struct sockaddr_in *sin;
    Server *master;
#if (NGX_HAVE_INET6)
    struct sockaddr_in6 *sin6;
#endif

    if (port < 1 || port > 65535 || host->len == 0
        || host->len > kReplyString) {
        return NGX_ERROR;
    }

    master = &node->master;
    url = &master->url;

    ngx_memzero(url, sizeof(ngx_url_t));

    url->host.data = node->master_text;
    url->host.len = host->len;
    url->port = (in_port_t)port;

    master->text.data = node->master_text;
    master->text.len = ngx_sprintf(node->master_text, "%V:%i", host, port)
                       - node->master_text;

    sin = &node->master_addr.sockaddr_in;
    sin->sin_addr.s_addr = ngx_inet_addr(host->data, host->len);

    if (sin->sin_addr.s_addr != INADDR_NONE) {
        sin->sin_family = AF_INET;
        sin->sin_port = htons((in_port_t)port);
        node->master_socklen = sizeof(struct sockaddr_in);
        url->naddrs = 1;
        return NGX_OK;
    }

#if (NGX_HAVE_INET6)

    sin6 = &node->master_addr.sockaddr_in6;
    ngx_memzero(sin6, sizeof(struct sockaddr_in6));

    if (ngx_inet6_addr(host->data, host->len, sin6->sin6_addr.s6_addr)
        == NGX_OK) {
        sin6->sin6_family = AF_INET6;
        sin6->sin6_port = htons((in_port_t)port);
        node->master_socklen = sizeof(struct sockaddr_in6);
        url->naddrs = 1;
    }

#endif

    return NGX_OK;
}

/* Leaves the sentinel for what it has named. */

void node_turn_to_master(Node *node)
{
    if (node == node->nodes->watch) {
        watched(node);
        return;
    }

    node_disconnect(node);

    node->finding = 0;
    node_use_address(node);

    node_resolve(node);
}

void node_use_address(Node *node)
{
    node->server = &node->master;
    node->naddrs = node->master.url.naddrs;
    node->sockaddrs[0] = node->master_addr;
    node->socklens[0] = node->master_socklen;
}

/* As others may know it: not as in a URL. */

void node_host(Node *node, ngx_str_t *host)
{
    *host = node->server->url.host;

    if (host->len > 2 && host->data[0] == '[') {
        host->data++;
        host->len -= 2;
    }
}

/* Called after commands have been sent. */

void watch_sentinels(Nodes *nodes)
{
    if (nodes->watch->state != NodeState::kClosed
        || ngx_current_msec - nodes->watched < kWatch) {
        return;
    }

    nodes->watched = ngx_current_msec;

    (void)nodes->watch->open();
}

static void watched(Node *watch)
{
    ngx_str_t *is, *was;
    Node *node;

    node = watch->nodes->node;

    is = &watch->master.text;
    was = &node->master.text;

    if (node->state == NodeState::kReady
        && (is->len != was->len
            || ngx_strncmp(is->data, was->data, is->len) != 0)) {
        node->fail(0, "sentinel names another master");
    }

    node_close(watch);
}

} // namespace limit_sliding
