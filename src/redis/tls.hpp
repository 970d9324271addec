/*
 * Copyright (C) the limit_sliding authors
 */

/* TLS of connections to Redis. */

#ifndef LIMIT_SLIDING_REDIS_TLS_HPP
#define LIMIT_SLIDING_REDIS_TLS_HPP

#include "redis/error_log.hpp"
#include "redis/settings.hpp"

namespace limit_sliding {

/* Makes the context of a block with "ssl on", which its pool owns.  Returns
 * NGX_CONF_OK, or logs why not. */
char *redis_ssl(ngx_conf_t *cf, Settings *settings);

/* The peer of a connection. */
struct TlsPeer {
    ngx_connection_t *connection;
    const TlsSettings &settings;
    const ngx_str_t
        &name; /* in its certificate, unless another is configured */
};

/* Shakes hands.  NGX_OK: it is over, see tls_is_up(); NGX_AGAIN: the handler
 * will be called once it is; NGX_ERROR: it cannot begin. */
ngx_int_t tls_handshake(const TlsPeer &peer,
                        void (*handler)(ngx_connection_t *c));

/* Has the handshake succeeded, now that it is over? */
bool tls_is_up(const ngx_connection_t *c);

/* Closes the connection without waiting for the peer. */
void tls_shutdown(ngx_connection_t *c);

/* May the peer be trusted, once the handshake has succeeded?  Logs why not. */
bool tls_verify(const TlsPeer &peer, ErrorLog &log);

} // namespace limit_sliding

#endif
