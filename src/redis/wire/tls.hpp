/* Copyright (C) the limit_sliding authors */

/* TLS of connections to Redis. */

#pragma once

#include "redis/wire/error_log.hpp"
#include "redis/wire/settings.hpp"

namespace limit_sliding {

/* Makes the context of a block with "ssl on", which its pool owns.  Returns
 * NGX_CONF_OK, or logs why not. */
char *redis_ssl(ngx_conf_t *cf, Settings *settings);

/* The others are there only if NGINX is built with SSL. */

/* Shakes hands with a host.  NGX_OK: it is over; NGX_AGAIN: the handler will be
 * called once it is; NGX_ERROR: it cannot begin. */
ngx_int_t tls_handshake(ngx_connection_t *c, const TlsSettings &settings, const ngx_str_t &host,
                        void (*handler)(ngx_connection_t *c));

/* Returns true if the certificate that the handshake has shown is the host's,
 * else logs why not. */
bool tls_verify(ngx_connection_t *c, const TlsSettings &settings, const ngx_str_t &host,
                ErrorLog &log);

} // namespace limit_sliding
