/* Copyright (C) the limit_sliding authors */

/* A worker's connection to a server: resolves a name, connects, sends and receives bytes. */

#pragma once

#include "redis/wire/error_log.hpp"
#include "redis/wire/known_addresses.hpp"

namespace limit_sliding {

class Connection;

/* The functions of its owner that a connection calls. */
struct ConnectionEvents {
    /* The connection is open, with TLS if that is configured. */
    void (*opened)(Connection &open);

    /* Bytes have arrived.  Returns nullptr, or the reason to fail the connection. */
    const char *(*received)(Connection &open, u_char *data, size_t len);

    /* All bytes that had arrived were passed to received(). */
    void (*drained)(Connection &open);

    /* The connection has failed; the owner must close it.  nullptr: the reason is in the log. */
    void (*failed)(Connection &broken, ngx_err_t err, const char *reason);

    /* NGINX wants the connection closed because the worker exits. */
    void (*unwanted)(Connection &open);
};

class Connection {
public:
    ~Connection() { ngx_free(out_); }

    /* Connects a closed connection to the endpoint, and calls opened() or failed(), possibly
     * before it returns.  The owner limits the time. */
    void connect();

    void close();
    bool is_closed() const { return !active_; }

    /* Returns room for `len` bytes at the end of the buffer, or nullptr if there is no memory. */
    u_char *reserve(size_t len);

    /* Adds the bytes before `end` to the buffer; reserve() has made room for them. */
    void written(const u_char *end) { out_last_ = end - out_; }

    /* Sends the buffer, which may fail the connection. */
    void flush();

    /* Returns the bytes in the buffer that the socket has not taken yet. */
    size_t unsent() const { return out_last_ - out_sent_; }

    /* Returns true if a handshake of TLS has begun and is not over. */
    bool is_shaking_hands() const;

    /* Marks the connection as idle.  An exiting worker closes idle connections at once, and does
     * not wait for others. */
    void set_idle(bool idle) { peer_.connection->idle = idle; }

    /* Makes the next attempt begin with the next address, if there are several. */
    void next_address() { address_++; }

    const ConnectionEvents *connection_events;
    const Settings *settings;
    ErrorLog *log;
    Endpoint *endpoint;
    KnownAddresses *known_addresses;

private:
    void fail(const char *reason, ngx_err_t err = 0);
    void fail_socket(const char *reason);
    void connect_to_addresses();
    void connect_to_address();
    void close_socket();
    void check_connected();
    void shake_hands();
    void opened();
    void receive();

    static void resolve_handler(ngx_resolver_ctx_t *ctx);
    static void handshake_handler(ngx_connection_t *c);

    /* Handles an event by `handle`, or by unwanted() if NGINX wants the connection closed. */
    template <void (Connection::*handle)()>
    static void on_event(ngx_event_t *ev);

    bool active_;
    bool heard_;     /* bytes have arrived since the connection was opened */
    size_t address_; /* number of the address to try, modulo the number of addresses */
    size_t untried_; /* addresses that this attempt has not tried */
    ngx_resolver_ctx_t *resolving_;
    ngx_peer_connection_t peer_;

    u_char *out_;     /* the buffer of bytes to send */
    size_t out_sent_; /* bytes of the buffer that the socket has taken */
    size_t out_last_; /* bytes of the buffer that were written */
    size_t out_size_; /* allocated bytes */
};

} // namespace limit_sliding
