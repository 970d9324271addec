/* Copyright (C) the limit_sliding authors */

/* Commands under way over one connection.  Their replies come in the same order. */

#pragma once

#include "ngx/array.hpp"
#include "ngx/event.hpp"
#include "ngx/list.hpp"
#include "ngx/memory.hpp"
#include "redis/wire/connection.hpp"
#include "redis/wire/reply.hpp"

namespace limit_sliding {

struct Node;
struct Call;

/* A handler is called once, without a reply if the call failed on the way, and
 * frees the call.  It leaves the node open; Pipeline::set_broken() closes it
 * later. */
using ReplyHandler = void (*)(Node &node, Call &call, Reply *reply);

/* A command under way.  Types with more state derive from it. */
struct Call {
    ngx_queue_t link; /* among the calls of the pipeline */
    ngx_msec_t sent;
    uint64_t sent_us; /* of clock_us() */
    ReplyHandler handler;
    SlotRangeSink *slots; /* nullptr unless the command is CLUSTER SLOTS, */
    TextSink *texts;      /* or this one, SCAN or INFO */
};

/* Returns a zeroed call but for its handler; nullptr: there is no memory. */
template <class T = Call>
T *create_call(ReplyHandler handler) {
    auto *call = create_on_heap<T>();
    if (call != nullptr) { call->handler = handler; }
    return call;
}

class Pipeline : public Connection {
public:
    /* Puts a command into the buffer.  Returns false if there is no memory; the
     * call is still the caller's then. */
    bool command(Call &call, Span<const std::string_view> args);

    /* Sends the buffer, which may fail the connection. */
    void send();

    /* Says by an error that nobody expects, or an unexpected reply, why the
     * connection is to be closed. */
    void blame(const Reply &reply);

    /* Has the connection closed for this reason once the handler of the present
     * reply has returned. */
    void set_broken(const char *reason) { broken_ = reason; }

    /* Returns true if calls may be sent. */
    bool is_ready() const { return ready_; }

    /* Returns true if there is time left to connect. */
    bool has_time() const { return timer_.timer_set; }

    /* Returns true if a call has waited for so many milliseconds. */
    bool is_late(ngx_msec_t ms) {
        return !calls_.empty() && ngx_current_msec - calls_.front().sent >= ms;
    }

    size_t ncalls;    /* under way */
    const char *role; /* of the server, for the log; nullptr: none */

protected:
    /* Prepares a zeroed one, of which handlers of calls are given the node. */
    void init(Node *node);

    /* Limits the time until set_ready(), from now on: NGINX's time may be old. */
    void start_timer() {
        ngx_time_update();
        connect_until_ = ngx_current_msec + settings->connect_timeout;
        ngx_add_timer(&timer_, settings->connect_timeout);
    }

    void stop_timer() {
        if (timer_.timer_set) { ngx_del_timer(&timer_); }
    }

    /* Begins to read replies.  Returns false if there is no memory. */
    bool start_reader() { return reader_.start(); }

    /* Lets calls be sent. */
    void set_ready() {
        ready_ = true;
        stop_timer();
    }

    /* Closes the connection.  Calls under way are left to drop_calls(). */
    void disconnect();

    /* Fails all calls under way. */
    void drop_calls();

    bool is_broken() const { return broken_ != nullptr; }

    static const char *received(Connection &connection, u_char *data, size_t len);

private:
    void check_time();

    Node *node_;
    List<Call, &Call::link> calls_; /* in order of sending */
    Reader reader_;
    ngx_event_t timer_; /* of connecting, then of the oldest call */
    Grace grace_;
    ngx_msec_t connect_until_;
    const char *broken_;
    bool ready_;
};

} // namespace limit_sliding
