/* Copyright (C) the limit_sliding authors */

/* TLS of connections to Redis. */

#pragma once

#include "redis/wire/error_log.hpp"
#include "redis/wire/settings.hpp"

namespace limit_sliding {

/* Sets settings->tls.context to a new TLS context, for a limit_sliding_redis block with "ssl on".
 * The pool of the configuration frees the context.  Returns NGX_CONF_OK; else logs the error and
 * returns NGX_CONF_ERROR. */
char *redis_ssl(ngx_conf_t *cf, Settings *settings);

/* The functions below exist only if NGINX is built with SSL. */

/* Begins the handshake with a host, which has no brackets.  The handler is called at its end,
 * perhaps before the function returns.  Returns false if the handshake cannot begin. */
bool tls_handshake(ngx_connection_t *c, const TlsSettings &settings, std::string_view host,
                   void (*handler)(ngx_connection_t *c));

/* Returns what has failed, with OpenSSL's reason behind it if there is one; valid until the next
 * call. */
const char *tls_failure(const char *what);

/* Returns true if the server's certificate is valid for the host, or need not be verified; else
 * logs the error. */
bool tls_verify(ngx_connection_t *c, const TlsSettings &settings, std::string_view host,
                ErrorLog &log);

} // namespace limit_sliding
