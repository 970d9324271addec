/* Copyright (C) the limit_sliding authors */

/* A worker's view of a server of a Redis: its pipeline, errands that are due there, and
 * failures. */

#pragma once

#include "ngx/event.hpp"
#include "redis/wire/pipeline.hpp"

namespace limit_sliding {

struct Redis;

/* The functions of the client that nodes call. */
struct ClientEvents {
    /* Sends the errands that are due at the node, the data of the event Node::flush. */
    void (*flush)(ngx_event_t *event);

    /* The attempt to connect has failed, so the errands that are due at the node cannot be sent. */
    void (*unreachable)(Node &node);

    /* Counts, for the breaker, a connection that failed or could not be opened. */
    void (*failed)(Node &node);
};

struct Errand;
struct ErrandCall;

/* The reason for which an errand has no answer. */
enum class Failure {
    kUnsent = 0, /* the command was not sent */
    kRefused,    /* Redis has replied with an error, so it has not run the command */
    kLost        /* no valid reply has come, so Redis may have run the command */
};

/* The functions of a kind of errands.  redis/errands/sender calls them. */
struct ErrandKind {
    /* Adds an ask to a call that has asks with the same put(), or none.  Returns false if the call
     * is full.  nullptr: errands of this kind are no asks, and have a call each. */
    bool (*join)(ErrandCall &call, Errand &errand);

    /* Puts the command of the call into the node's buffer.  Returns false if there is no memory. */
    bool (*put)(Node &node, ErrandCall &call);

    /* Takes the errands from the call and handles the reply to them, which may be an error.  The
     * errands that are left in the call fail. */
    void (*answered)(Node &node, ErrandCall &call, Reply &reply);

    /* Ends an errand without an answer.  The errand is in no list. */
    void (*failed)(Errand &errand, Failure failure);

    /* Reverts join(), because the command was not run and will be sent again.  nullptr: nothing
     * is to be reverted. */
    void (*returned)(Errand &errand) = nullptr;

    /* Sends an idle errand that must_wait() has let wait, if it must still be sent.  nullptr:
     * errands of this kind are not patient. */
    void (*resume)(Errand &errand) = nullptr;
};

enum class ErrandState {
    kIdle = 0,
    kPatient,  /* the errand is in Client::patient */
    kUnrouted, /* the errand is in Client::unrouted */
    kDue,      /* the errand is due at a node */
    kInCall    /* a call carries the errand */
};

/* Stands for the slot of an errand that is for a master. */
constexpr ngx_int_t kMasterSlot = -2;

/* A task at a node that one command does.  Types with more state derive from it. */
struct Errand {
    const ErrandKind *kind;
    ngx_queue_t link; /* in the list of a node, a call, or the client */
    Redis *redis;
    Node *to;         /* node where the errand is due, or was sent last */
    ngx_int_t slot;   /* slot of the keys in a cluster, or kMasterSlot */
    uint64_t master;  /* id of the master for kMasterSlot; 0: the first master */
    ngx_msec_t since; /* ms of the first attempt to send the errand */
    ngx_uint_t hops;  /* attempts to send the errand to another node */
    ErrandState state;
    bool asking;     /* ASKING must precede the command */
    bool is_patient; /* the errand is under way by send_patiently() */
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

    /* Opens the connection unless it is open, or being opened: the node will be ready or fail.
     * Returns false if the node has failed, and no attempt is due. */
    bool open();

    /* Closes the connection, and leaves calls under way to drop_calls(). */
    void close() {
        stop_timer(timer_);
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
    bool is_usable() const { return !is_closed() || failures == 0 || ms_until(retry_at) <= 0; }

    /* Notes that the node has replied. */
    void succeeded() {
        failures = 0;
        answered_ = true;
    }

    /* Notes that the server's clock showed this time in a call that was sent at `sent_us`, and
     * answered at `now_us`.  Returns the ms by which the clock was set back since the last call, at
     * least; 0: it was not. */
    int64_t note_clock(int64_t server_ms, uint64_t sent_us, uint64_t now_us);

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

    ErrandList due; /* errands to be sent to this node; the client owns them */
    ngx_uint_t ndue;
    ngx_uint_t npatient;   /* due errands that are patient */
    ngx_uint_t nask_calls; /* calls under way that carry asks */
    ngx_event_t flush;     /* posted by post_flush() */

    /* The ms by which the server's clock is ahead of clock_us(): at most, and at least.  Until the
     * first reply, the server's clock is taken to be that of this machine. */
    int64_t clock_ahead_ms;
    int64_t clock_least_ms;

    ngx_uint_t nconnected; /* connections that became ready so far */
    bool is_kept;          /* an exiting worker needs the connection, because requests hold units */

    ngx_uint_t failures; /* consecutive failures */
    ngx_msec_t retry_at; /* ms before which no attempt to connect begins, after a failure */

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
