/* Copyright (C) the limit_sliding authors */

/* A worker's view of a server of a Redis: its pipeline, asks that are due there, and failures. */

#pragma once

#include "ngx/event.hpp"
#include "redis/wire/pipeline.hpp"

namespace limit_sliding {

struct Redis;

/* The functions of the client that nodes call. */
struct ClientEvents {
    /* Sends the asks that are due at the node.  Node::post_flush() posts this call. */
    void (*flush)(Node &node);

    /* The attempt to connect has failed, so asks and errands that wait for the node fail, too. */
    void (*unreachable)(Node &node);

    /* Counts, for the breaker, a connection that failed or could not be opened. */
    void (*failed)(Node &node);
};

/* A task at a node other than sending asks.  One function is called once, after the errand has
 * left its list: run() when commands may be sent, or fail() if connecting has failed. */
struct Errand {
    void (*run)(Errand &errand, Node &node);
    void (*fail)(Errand &errand, Node &node);
    ngx_queue_t link; /* in the list of errands that wait for the node */
};

using ErrandList = List<Errand, &Errand::link>;

/* The functions of the topology that nodes call.  All but greet() may be nullptr. */
struct NodeRole {
    /* Puts the first commands into the buffer.  Returns false if the node has failed. */
    bool (*greet)(Node &node);

    /* Sets the endpoint of a node that is about to connect: `first` at the beginning of an
     * attempt, else after a server has failed.  Returns false if there is no other server. */
    bool (*next_server)(Node &node, bool first);

    /* All received replies were handled.  Returns true if this has closed the connection. */
    bool (*drained)(Node &node);

    /* The node has failed, and its calls were dropped. */
    void (*failed)(Node &node);
};

/* The context that the nodes of one Redis share. */
struct NodeContext {
    Redis *redis;
    const Settings *settings;
    ErrorLog *log;
    KnownAddresses *known_addresses;
    const ClientEvents *events; /* nullptr: the client sends nothing to these nodes */
};

struct Node : Pipeline {
    /* Prepares a zeroed node. */
    void init(const NodeContext &context, const NodeRole *role_of_node);

    /* Opens the connection unless it is open.  NGX_OK: commands may be sent; NGX_AGAIN: the node
     * will be ready or fail; NGX_DECLINED: the node has failed, and no attempt is due. */
    ngx_int_t open();

    /* Closes the connection, and leaves calls under way to drop_calls(). */
    void close() {
        stop_timer();
        disconnect();
    }

    /* Closes the connection and fails all calls under way.  Logs the reason if not nullptr. */
    void fail(ngx_err_t err, const char *reason);

    /* Fails calls under way, and connects to the endpoint, which is another server now. */
    void reconnect() {
        disconnect();
        drop_calls();
        connect();
    }

    /* Returns true if the node is connected, or may be connected to now. */
    bool is_usable() const;

    /* Notes that the node has replied. */
    void succeeded() {
        failures = 0;
        answered_ = true;
    }

    /* Returns true if asks or errands wait for the node. */
    bool is_wanted() const { return ndue != 0 || !errands.empty(); }

    /* Makes an errand run after the asks that are due. */
    void send_errand(Errand &errand) {
        errands.push_back(errand);
        post_flush();
    }

    /* Makes the client flush the node in this turn of the event loop. */
    void post_flush() { post_event(flush); }

    /* Adds a command to the greeting; the handler of the call calls greeted().  Returns false if
     * there is no memory and the node has failed. */
    bool greet(Call *call, Span<const Arg> args);

    /* Adds AUTH to the greeting, if there are credentials. */
    bool greet_with(const Credentials &credentials);

    /* Adds AUTH and SELECT to the greeting, for a server that has the keys. */
    bool greet_server();

    /* Notes that a command of the greeting succeeded; after the last one the node is ready. */
    void greeted();

    Endpoint server; /* the endpoint, unless the topology sets another */
    Redis *redis;
    const ClientEvents *events;
    const NodeRole *topology;

    ngx_queue_t due; /* asks to be sent to this node; the client owns them */
    ngx_uint_t ndue;
    ngx_uint_t nsettlements; /* due settlements, for which no request waits */
    ngx_uint_t nask_calls;   /* calls under way that carry asks */
    ErrandList errands;      /* tasks that wait for this node */
    ngx_event_t flush;       /* posted by post_flush() */

    ngx_uint_t failures; /* consecutive failures */
    ngx_msec_t retry_at;

    /* The last attempt to connect has failed, or requests have timed out during the attempt.  The
     * breaker has counted this failure. */
    bool attempt_failed;

private:
    void back_off();

    static const ConnectionEvents node_events;

    size_t greetings_; /* commands of the greeting that have no reply yet */
    bool answered_;    /* the node has replied since its last failure */
};

} // namespace limit_sliding
