/* Copyright (C) the limit_sliding authors */

/* A worker's connection to a server: from its name to bytes in and out. */

#pragma once

#include "redis/wire/error_log.hpp"
#include "redis/wire/known_addresses.hpp"

namespace limit_sliding {

class Connection;

/* A connection calls these functions of its owner. */
struct ConnectionEvents {
    /* It is open, with TLS if that is configured. */
    void (*opened)(Connection &open);

    /* Bytes have come.  Returns nullptr, or why it is to fail. */
    const char *(*received)(Connection &open, u_char *data, size_t len);

    /* All that had come was received. */
    void (*drained)(Connection &open);

    /* It failed, and is to be closed.  The log has a reason of nullptr. */
    void (*failed)(Connection &broken, ngx_err_t err, const char *reason);

    /* NGINX wants it closed, as the worker exits. */
    void (*unwanted)(Connection &open);
};

class Connection {
public:
    ~Connection() { ngx_free(out_); }

    /* Connects a closed one to the endpoint.  The owner is told how it went,
     * perhaps at once; it limits the time. */
    void connect();

    void close();
    bool is_closed() const { return !active_; }

    /* Returns where so many bytes may be put into the buffer, or nullptr if there is no memory. */
    u_char *reserve(size_t len);

    /* Adds the bytes up to this one, which reserve() has made room for. */
    void written(const u_char *end) { out_last_ = end - out_; }

    /* Sends the buffer.  May fail. */
    void flush();

    bool has_unsent() const { return out_last_ != 0; }

    /* NGINX closes idle connections when a worker is to exit; for others it does not wait. */
    void set_idle(bool idle) { peer_.connection->idle = idle; }

    /* Has the next attempt begin with another address, if there are more. */
    void next_address() { address_++; }

    const ConnectionEvents *connection_events;
    const Settings *settings;
    ErrorLog *log;
    Endpoint *endpoint;
    KnownAddresses *known_addresses;

private:
    void fail(const char *reason, ngx_err_t err = 0);
    void resolve();
    void connect_to_addresses();
    void connect_to_address();
    void close_socket();
    void check_connected();
    void shake_hands();
    void opened();
    void receive();

    static void resolve_handler(ngx_resolver_ctx_t *ctx);
    static void handshake_handler(ngx_connection_t *c);

    /* Handles an event, unless NGINX wants the connection closed. */
    template <void (Connection::*handle)()>
    static void on_event(ngx_event_t *ev);

    bool active_;
    size_t address_; /* the one that is tried, counted from the first and over again */
    size_t untried_; /* addresses that this attempt has left */
    ngx_resolver_ctx_t *resolving_;
    ngx_peer_connection_t peer_;

    u_char *out_;
    size_t out_sent_;
    size_t out_last_;
    size_t out_size_;
};

} // namespace limit_sliding
