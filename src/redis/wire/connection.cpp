/* Copyright (C) the limit_sliding authors */

#include "redis/wire/connection.hpp"

#include "redis/wire/tls.hpp"

namespace limit_sliding {

namespace {

/* The largest send buffer, in bytes, that is kept once all of it is sent. */
constexpr size_t kBufferKept = 64 * 1024;

Connection &owner(ngx_connection_t *c) { return *static_cast<Connection *>(c->data); }

} // namespace

/* Tries the next address while connecting; if there is none, reports the failure. */
void Connection::fail(const char *reason, ngx_err_t err) {
    if (untried_ != 0) {
        next_address();
        close_socket();
        connect_to_address();
        return;
    }

    connection_events->failed(*this, err, reason);
}

/* Fails after a function of the socket, or of TLS upon it, has failed.  If that was send(), the
 * server's alert may be waiting to be read. */
void Connection::fail_socket(const char *reason) {
    const ngx_err_t err = ngx_socket_errno;
    const char *cause = reason;
#if (NGX_HTTP_SSL)
    ngx_connection_t *c = peer_.connection;
    if (c->ssl != nullptr) {
        u_char byte;
        (void)c->recv(c, &byte, sizeof(byte));
        cause = tls_failure(reason);
    }
#endif
    fail(cause, cause == reason ? err : 0);
}

bool Connection::is_shaking_hands() const {
#if (NGX_HTTP_SSL)
    const ngx_connection_t *c = peer_.connection;
    return c != nullptr && c->ssl != nullptr && !c->ssl->handshaked;
#else
    return false;
#endif
}

void Connection::connect() {
    active_ = true;
    if (!endpoint->is_name) {
        connect_to_addresses();
        return;
    }

    ngx_resolver_ctx_t *ctx
        = settings->resolver != nullptr ? ngx_resolve_start(settings->resolver, nullptr) : nullptr;

    if (ctx == nullptr || ctx == NGX_NO_RESOLVER) {
        log->write(0, "%V: no resolver", &endpoint->text);
        fail(nullptr);
        return;
    }

    ctx->name = endpoint->host;
    ctx->handler = resolve_handler;
    ctx->data = this;
    ctx->cancelable = 1;
    ctx->timeout = settings->connect_timeout;

    if (endpoint->naddrs == 0) { known_addresses->get(*endpoint); }

    /* half of the time is left for the last known addresses */
    if (endpoint->naddrs != 0) { ctx->timeout /= 2; }

    resolving_ = ctx;
    if (ngx_resolve_name(ctx) != NGX_OK) {
        /* ngx_resolve_name() has freed the context */
        resolving_ = nullptr;
        fail("no resolving");
    }
}

void Connection::resolve_handler(ngx_resolver_ctx_t *ctx) {
    auto &self = *static_cast<Connection *>(ctx->data);
    if (ctx->state != 0) {
        self.log->write(0, "%V could not be resolved (%i: %s)", &ctx->name, ctx->state,
                        ngx_resolver_strerror(ctx->state));
    } else {
        self.endpoint->set_addresses(ctx->addrs, ctx->naddrs);
        self.known_addresses->put(*self.endpoint);
    }

    ngx_resolve_name_done(ctx);
    self.resolving_ = nullptr;

    /* if the name was not resolved, the last known addresses are tried */
    if (self.endpoint->naddrs != 0) {
        self.connect_to_addresses();
    } else {
        self.fail(nullptr);
    }
}

void Connection::connect_to_addresses() {
    untried_ = endpoint->naddrs;
    connect_to_address();
}

void Connection::connect_to_address() {
    Endpoint::Address &address = endpoint->addrs[address_ % endpoint->naddrs];
    untried_--;
    peer_ = {};
    peer_.sockaddr = &address.address.sockaddr;
    peer_.socklen = address.len;
    peer_.name = &endpoint->text;
    peer_.get = ngx_event_get_peer;
    peer_.log = ngx_cycle->log;
    peer_.log_error = NGX_ERROR_INFO;
    peer_.so_keepalive = 1;

    ngx_int_t rc = ngx_event_connect_peer(&peer_);
    if (rc == NGX_ERROR || rc == NGX_DECLINED || rc == NGX_BUSY) {
        /* ngx_event_connect_peer() has logged the error */
        fail(nullptr);
        return;
    }

    ngx_connection_t *c = peer_.connection;
    c->data = this;
    c->log = ngx_cycle->log;
    c->read->log = c->log;
    c->write->log = c->log;
    c->read->handler = on_event<&Connection::check_connected>;
    c->write->handler = c->read->handler;
    c->pool = ngx_create_pool(512, c->log);

    if (c->pool == nullptr) {
        fail("no memory");
        return;
    }

    if (rc == NGX_OK) { shake_hands(); }
}

template <void (Connection::*handle)()>
void Connection::on_event(ngx_event_t *ev) {
    auto *c = static_cast<ngx_connection_t *>(ev->data);
    Connection &self = owner(c);
    if (c->close) {
        self.connection_events->unwanted(self);
    } else {
        (self.*handle)();
    }
}

void Connection::check_connected() {
    int err = 0;
    socklen_t len = sizeof(int);
    if (getsockopt(peer_.connection->fd, SOL_SOCKET, SO_ERROR, &err, &len) == -1) {
        err = ngx_socket_errno;
    }

    if (err != 0) {
        fail("connect() failed", err);
    } else {
        shake_hands();
    }
}

void Connection::shake_hands() {
    ngx_connection_t *c = peer_.connection;
    if (peer_.sockaddr->sa_family != AF_UNIX && ngx_tcp_nodelay(c) != NGX_OK) {
        fail("setsockopt() failed");
        return;
    }

#if (NGX_HTTP_SSL)
    if (settings->tls.on) {
        if (!tls_handshake(c, settings->tls, endpoint->bare_host(), handshake_handler)) {
            fail("no TLS");
        }
        return;
    }
#endif

    opened();
}

#if (NGX_HTTP_SSL)
void Connection::handshake_handler(ngx_connection_t *c) {
    Connection &self = owner(c);
    if (!c->ssl->handshaked) {
        self.fail(tls_failure("TLS handshake failed"));
    } else if (!tls_verify(c, self.settings->tls, self.endpoint->bare_host(), *self.log)) {
        self.fail(nullptr);
    } else {
        self.opened();
    }
}
#endif

void Connection::opened() {
    untried_ = 0;
    heard_ = false;
    peer_.connection->read->handler = on_event<&Connection::receive>;
    peer_.connection->write->handler = on_event<&Connection::flush>;
    connection_events->opened(*this);
}

/* Sizes a larger buffer by the unsent bytes alone: the buffer of a busy link is never empty, and
 * would grow without bound if sent bytes counted. */
u_char *Connection::reserve(size_t len) {
    if (out_size_ - out_last_ < len) {
        size_t unsent = out_last_ - out_sent_;
        size_t size = ngx_max(2 * unsent + len, out_size_);
        auto *larger = static_cast<u_char *>(ngx_alloc(size, ngx_cycle->log));
        if (larger == nullptr) { return nullptr; }

        if (out_ != nullptr) {
            ngx_memcpy(larger, out_ + out_sent_, unsent);
            ngx_free(out_);
        }

        out_ = larger;
        out_size_ = size;
        out_sent_ = 0;
        out_last_ = unsent;
    }
    return out_ + out_last_;
}

void Connection::flush() {
    ngx_connection_t *c = peer_.connection;
    while (out_sent_ < out_last_) {
        ssize_t n = c->send(c, out_ + out_sent_, out_last_ - out_sent_);
        if (n == NGX_AGAIN) { break; }

        if (n <= 0) {
            fail_socket("send() failed");
            return;
        }

        out_sent_ += n;
    }

    if (out_sent_ == out_last_) {
        out_sent_ = 0;
        out_last_ = 0;
        if (out_size_ > kBufferKept) {
            ngx_free(out_);
            out_ = nullptr;
            out_size_ = 0;
        }
    }

    if (ngx_handle_write_event(c->write, 0) != NGX_OK) { fail("no event"); }
}

void Connection::receive() {
    static u_char buffer[16 * 1024];
    ngx_connection_t *c = peer_.connection;
    for (;;) {
        ssize_t n = c->recv(c, buffer, sizeof(buffer));
        if (n == NGX_AGAIN) { break; }

        const bool is_closed_by_server = n == 0 || (n < 0 && ngx_socket_errno == NGX_ECONNRESET);
        if (is_closed_by_server && !heard_ && !settings->tls.on) {
            fail("it closed the connection before any reply, does it need \"ssl on\"?");
            return;
        }

        if (n < 0) {
            fail_socket("recv() failed");
            return;
        }

        const char *reason
            = n == 0 ? "it closed the connection" : connection_events->received(*this, buffer, n);

        heard_ = true;
        if (reason != nullptr) {
            fail(reason);
            return;
        }
    }

    if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        fail("no event");
        return;
    }

    connection_events->drained(*this);
}

void Connection::close() {
    active_ = false;
    untried_ = 0;
    out_sent_ = 0;
    out_last_ = 0;
    if (resolving_ != nullptr) {
        ngx_resolve_name_done(resolving_);
        resolving_ = nullptr;
    }

    close_socket();
}

void Connection::close_socket() {
    ngx_connection_t *c = peer_.connection;
    if (c == nullptr) { return; }

    peer_.connection = nullptr;

#if (NGX_HTTP_SSL)
    if (c->ssl != nullptr) {
        c->ssl->no_wait_shutdown = 1;
        c->ssl->no_send_shutdown = 1;
        (void)ngx_ssl_shutdown(c);
    }
#endif

    ngx_pool_t *pool = c->pool;
    ngx_close_connection(c);
    if (pool != nullptr) { ngx_destroy_pool(pool); }
}

} // namespace limit_sliding
