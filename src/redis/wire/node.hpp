/* Copyright (C) the limit_sliding authors */

/* A server of a Redis as a worker sees it: its pipeline, the asks that are due there,
 * and the number of its failures. */

#pragma once

#include "ngx/event.hpp"
#include "redis/wire/pipeline.hpp"

namespace limit_sliding {

struct Redis;

/* Nodes call these functions of the client. */
struct ClientEvents {
    /* Sends the asks that are due at the node.  Posted, see Node::post_flush(). */
    void (*flush)(Node &node);

    /* The attempt to connect failed: the asks that are due at the node fail as well. */
    void (*unreachable)(Node &node);

    /* The breaker is to count a connection that failed, or that could not be made. */
    void (*failed)(Node &node);
};

/* A task at a node other than to send asks.  It is called once, out
 * of the list: when commands may be sent, or as the node cannot be connected to. */
struct Errand {
    void (*run)(Errand &errand, Node &node);
    void (*fail)(Errand &errand, Node &node);
    ngx_queue_t link; /* of the tasks that wait for the node */
};

using ErrandList = List<Errand, &Errand::link>;

/* Nodes call these functions of their topology.  All but greet() may be nullptr. */
struct NodeRole {
    /* Puts the first commands into the buffer.  Returns false if the node has failed by that. */
    bool (*greet)(Node &node);

    /* Sets the endpoint of a closed node that is about to connect, at
     * `first` or as the attempt has failed.  Returns false if there is no
     * other server. */
    bool (*next_server)(Node &node, bool first);

    /* All replies that had come were handled.  Returns true if the connection
     * was closed by that. */
    bool (*drained)(Node &node);

    /* The node failed. */
    void (*failed)(Node &node);
};

/* Nodes of one Redis have this in common. */
struct NodeContext {
    Redis *redis;
    const Settings *settings;
    ErrorLog *log;
    KnownAddresses *known_addresses;
    const ClientEvents *events; /* nullptr: the client sends nothing to them */
};

struct Node : Pipeline {
    /* Prepares a zeroed one. */
    void init(const NodeContext &context, const NodeRole *role_of_node);

    /* Opens the connection if need be.  NGX_OK: commands may be sent;
     * NGX_AGAIN: soon, or it fails; NGX_DECLINED: it has failed, and it is not
     * yet time to try again. */
    ngx_int_t open();

    /* Closes the connection when there are no calls under way. */
    void close() {
        stop_timer();
        disconnect();
    }

    /* Closes the connection and fails all calls under way.  The reason is
     * logged, unless it is nullptr. */
    void fail(ngx_err_t err, const char *reason);

    /* Connects to another server, which is the endpoint now. */
    void reconnect() {
        disconnect();
        connect();
    }

    /* Returns true if it is worth waiting for. */
    bool is_usable() const;

    /* Notes that it has answered. */
    void succeeded() {
        failures = 0;
        answered_ = true;
    }

    /* Returns true if the client has something to do here that waits. */
    bool is_wanted() const { return ndue != 0 || !errands.empty(); }

    /* Has an errand run after the asks that are due. */
    void send_errand(Errand &errand) {
        errands.push_back(errand);
        post_flush();
    }

    /* Lets the client flush it in this turn of the event loop. */
    void post_flush() { post_event(flush); }

    /* Greets with a command; its handler calls greeted().  Returns false if
     * there is no memory, and so the node has failed. */
    bool greet(Call *call, Span<const std::string_view> args);

    /* Greets with AUTH, if there is anything to authenticate with. */
    bool greet_with(const Credentials &credentials);

    /* Greets a server that has the keys. */
    bool greet_server();

    /* Notes an answer to a greeting; after the last one the node is ready. */
    void greeted();

    Endpoint server; /* the endpoint, unless the topology has another */
    Redis *redis;
    const ClientEvents *events;
    const NodeRole *topology;

    ngx_queue_t due; /* the client's: asks that are to be sent here */
    ngx_uint_t ndue;
    ngx_uint_t nsettlements; /* of these: nobody waits for them */
    ngx_uint_t nask_calls;   /* calls under way that carry asks */
    ErrandList errands;      /* the client's as well */
    ngx_event_t flush;       /* posted */

    ngx_uint_t failures; /* in a row */
    ngx_msec_t retry_at;

    /* The last attempt to connect has failed, or requests have waited for the
     * attempt in vain.  The breaker has counted that. */
    bool attempt_failed;

private:
    void back_off();

    static const ConnectionEvents node_events;

    size_t greetings_; /* to be answered */
    bool answered_;    /* since it failed last */
};

} // namespace limit_sliding
