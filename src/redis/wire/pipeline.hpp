/* Copyright (C) the limit_sliding authors */

/* Commands under way on one connection.  Redis replies in the order of the commands. */

#pragma once

#include "ngx/containers.hpp"
#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "redis/wire/connection.hpp"
#include "redis/wire/reply.hpp"

namespace limit_sliding {

struct Node;
struct Call;

/* An argument of a command: a text, and a suffix for the names of several values of one key. */
struct Arg {
    constexpr Arg() = default;
    constexpr Arg(std::string_view arg_text, std::string_view arg_suffix = {})
        : text(arg_text), suffix(arg_suffix) {}
    constexpr Arg(const char *arg_text) : text(arg_text) {}

    size_t size() const { return text.size() + suffix.size(); }

    std::string_view text;
    std::string_view suffix;
};

/* Handles the reply to a call, nullptr if the call has failed, and frees the call.  Called once
 * for each call.  It must not close the node; Pipeline::set_broken() closes the node later. */
using ReplyHandler = void (*)(Node &node, Call &call, Reply *reply);

/* A command under way.  Types with more state derive from it. */
struct Call {
    ngx_queue_t link; /* in the list of calls of the pipeline */
    ngx_msec_t sent;  /* ngx_current_msec when the command was put into the buffer */
    uint64_t sent_us; /* clock_us() then, or when the command was made; 0: not yet */
    ReplyHandler handler;
    SlotRangeSink *slots; /* takes the reply to CLUSTER SLOTS, else nullptr */
    TextSink *texts;      /* takes the reply to SCAN, ROLE or INFO, else nullptr */
};

/* Returns a call, zeroed except for its handler, or nullptr if there is no memory. */
template <class T = Call>
T *create_call(ReplyHandler handler) {
    auto *call = create_on_heap<T>();
    if (call != nullptr) { call->handler = handler; }
    return call;
}

class Pipeline : public Connection {
public:
    /* Puts a command into the buffer, and owns the call from then on.  Returns false if there is
     * no memory; the caller still owns the call then. */
    bool command(Call &call, Span<const Arg> args);

    /* Sends the buffer, which may fail the connection. */
    void send() {
        flush();
        if (!timer_.timer_set && !calls_.empty()) { ngx_add_timer(&timer_, settings->timeout); }
    }

    /* Breaks the connection because of an unexpected reply or error, which becomes the reason. */
    void blame(const Reply &reply);

    /* Makes the connection fail for this reason after the handler of the present reply. */
    void set_broken(const char *reason) { broken_ = reason; }
    bool is_broken() const { return broken_ != nullptr; }

    /* Returns true if calls may be sent. */
    bool is_ready() const { return ready_; }

    /* Returns true if there is time left to connect. */
    bool has_time() const { return timer_.timer_set; }

    /* Returns true if a call has waited for `ms` or longer. */
    bool is_late(ngx_msec_t ms) {
        return !calls_.empty() && ngx_current_msec - calls_.front().sent >= ms;
    }

    size_t ncalls;    /* calls under way */
    const char *role; /* kind of the server, for the log; nullptr: not logged */

protected:
    /* Prepares a zeroed pipeline; handlers of calls get `node`. */
    void init(Node *node);

    /* Closes the connection.  Calls under way are left to drop_calls(). */
    void disconnect();

    /* Fails all calls under way. */
    void drop_calls();

    static const char *received(Connection &connection, u_char *data, size_t len);

    Reader reader_;
    ngx_event_t timer_; /* limits connecting, and then the oldest call */
    ngx_msec_t connect_until_;
    bool ready_;         /* calls may be sent */
    bool authenticates_; /* the greeting has had a password */

private:
    void check_time();

    Node *node_;
    List<Call, &Call::link> calls_; /* in order of sending */
    Grace grace_;
    const char *broken_;
};

} // namespace limit_sliding
