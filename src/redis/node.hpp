/*
 * Copyright (C) the limit_sliding authors
 */

/* A worker's connection to one server, and what is due there. */

#ifndef LIMIT_SLIDING_REDIS_NODE_HPP
#define LIMIT_SLIDING_REDIS_NODE_HPP

#include "redis/error_log.hpp"
#include "redis/pipeline.hpp"
#include "redis/settings.hpp"

namespace limit_sliding {

struct Redis;
struct Nodes;

/* What the client is told of its nodes. */
struct ClientEvents {
    /* Sends what is due at the node.  Posted, see Node::post_flush(). */
    void (*flush)(Node &node);

    /* The node cannot be connected to: what is due there fails. */
    void (*fail_due)(Node &node);

    /* The connection failed, or could not be made. */
    void (*failed)(Node &node);
};

enum class NodeState {
    kClosed = 0,
    kResolving,
    kConnecting,
    kHandshaking,
    kGreeting, /* AUTH, SELECT */
    kReady
};

constexpr auto kAddressesMax = 8;

struct Node {
    /* Opens the connection if need be.  NGX_OK: commands may be sent;
     * NGX_AGAIN: soon, or it fails; NGX_DECLINED: it has failed, and it is not
     * yet time to try again. */
    ngx_int_t open();

    /* Is it worth waiting for? */
    bool is_usable() const;

    bool is_ready() const { return state == NodeState::kReady; }

    bool has_unsent() const { return out_last != 0; }

    /* Puts a command into the buffer.  NGX_ERROR: there is no memory. */
    ngx_int_t command(Call &call, int argc, const char **argv,
                      const size_t *argvlen);

    /* Sends what is in the buffer.  May fail the node. */
    void send();

    /* Closes the connection; all calls under way have failed. */
    void fail(ngx_err_t err, const char *reason);

    /* A reply that nobody asked for, or not such a one: says why the connection
     * is to be closed once the call's handler has returned. */
    void blame(Reply &reply);

    /* The same, for this reason. */
    void set_broken(const char *reason) { broken = reason; }

    /* It answers. */
    void succeeded();

    /* Requests may wait for it again. */
    void forgive() { failures = 0; }

    /* Lets the client flush it in this turn of the event loop. */
    void post_flush() { ngx_post_event(&flush, &ngx_posted_events); }

    Redis *redis; /* the client's */
    Nodes *nodes;
    const Settings *settings;
    ErrorLog *log;

    ngx_queue_t due; /* the client's: what is to be sent here */
    ngx_uint_t ndue;
    ngx_uint_t ncalls; /* under way */

    Server *server;
    NodeState state;

    ngx_uint_t naddrs;
    ngx_uint_t addr; /* to connect to next */
    ngx_sockaddr_t sockaddrs[kAddressesMax];
    socklen_t socklens[kAddressesMax];

    ngx_uint_t sentinel;  /* to ask next */
    ngx_uint_t tries;     /* of sentinels, by this
                                                      attempt to connect */
    unsigned finding : 1; /* is of a sentinel */
    unsigned found : 1;   /* by this attempt */
    Server master;
    u_char master_text[kReplyString + sizeof(":65535")];
    ngx_sockaddr_t master_addr;
    socklen_t master_socklen;

    ngx_resolver_ctx_t *resolving;
    ngx_peer_connection_t peer;
    void *reader; /* redisReader */
    Reply reply;

    u_char *out; /* to be sent */
    size_t out_sent;
    size_t out_last;
    size_t out_size;

    ngx_event_t flush; /* posted */

    ngx_queue_t calls;    /* in order of sending */
    ngx_event_t timer;    /* of connecting, then of
                                                      the oldest call */
    ngx_uint_t greetings; /* to be answered */
    const char *broken;   /* why, NULL if not */
    ngx_uint_t answered;  /* since it failed last */
    ngx_uint_t failures;  /* in a row */
    ngx_msec_t retry_at;

    ngx_queue_t queue; /* of the cluster */
    unsigned seed : 1;
    unsigned mapped : 1; /* has slots */
};

/* node */
Node *node_create(Nodes *nodes, Server *server);
void node_set_server(Node *node, Server *server);
void node_ready(Node *node);
void node_leave(Node *node);
void node_close(Node *node);
void node_rest(Node *node);

/* io */
void node_read_handler(ngx_event_t *rev);
void node_write_handler(ngx_event_t *wev);

/* sentinel */
void node_find(Node *node);
ngx_uint_t node_may_find(Node *node);
void node_ask_master(Node *node);
void node_turn_to_master(Node *node);
void watch_sentinels(Nodes *nodes);
char *sentinel_text(Node *node, Reply *reply);
ngx_int_t node_set_address(Node *node, ngx_str_t *host, ngx_int_t port);
void node_use_address(Node *node);
void node_host(Node *node, ngx_str_t *host);

/* connect */
void node_resolve(Node *node);
void node_greet(Node *node);
ngx_int_t node_greeting(Node *node, int argc, ngx_str_t *args,
                        ReplyHandler handler);
void node_disconnect(Node *node);

} // namespace limit_sliding

#endif
