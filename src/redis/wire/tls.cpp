/* Copyright (C) the limit_sliding authors */

#include "redis/wire/tls.hpp"

#include "ngx/conf.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/wire/endpoint.hpp"

namespace limit_sliding {

#if (NGX_HTTP_SSL)

namespace {

ngx_str_t name_of(const TlsSettings &settings, std::string_view host) {
    return settings.name.len != 0 ? settings.name : to_str(host);
}

/* OpenSSL's last error of a handshake, or of an alert that the server has sent.  NGINX's functions
 * remove errors from OpenSSL's queue, and log most of them at the level "info". */
unsigned long last_error;

void note_error(const SSL *, int where, int ret) {
    if (where == SSL_CB_CONNECT_EXIT && ret <= 0) {
        last_error = ERR_peek_last_error();
    } else if (where == SSL_CB_READ_ALERT) {
        const int reason = SSL_AD_REASON_OFFSET + (ret & 0xff);
#if defined(OPENSSL_IS_BORINGSSL) || defined(OPENSSL_IS_AWSLC)
        last_error = ERR_PACK(ERR_LIB_SSL, reason);
#else
        last_error = ERR_PACK(ERR_LIB_SSL, 0, reason);
#endif
    }
}

/* NGINX compares the DNS names of a certificate only, and so would take "DNS:10.0.0.1" for an
 * address, but not "IP:10.0.0.1". */
bool is_certificate_of(ngx_connection_t *c, ngx_str_t name) {
    ngx_sockaddr_t address;
    if (parse_address(name, &address) == 0) { return ngx_ssl_check_host(c, &name) == NGX_OK; }

    const auto *bytes = reinterpret_cast<u_char *>(&address.sockaddr_in.sin_addr);
    size_t len = sizeof(in_addr);
#if (NGX_HAVE_INET6)
    if (address.sockaddr.sa_family == AF_INET6) {
        bytes = address.sockaddr_in6.sin6_addr.s6_addr;
        len = sizeof(in6_addr);
    }
#endif

    X509 *certificate = SSL_get_peer_certificate(c->ssl->connection);
    const bool is_of = certificate != nullptr && X509_check_ip(certificate, bytes, len, 0) == 1;
    X509_free(certificate);
    return is_of;
}

/* Sends the name of the server (SNI), but no literal address: RFC 6066 does not permit it. */
bool send_name(ngx_connection_t *c, ngx_str_t name) {
    ngx_sockaddr_t address;
    if (name.len == 0 || parse_address(name, &address) != 0) { return true; }

    u_char *text = alloc_bytes(c->pool, name.len + 1);
    if (text == nullptr) { return false; }

    *append(text, view(name)) = '\0';
    if (SSL_set_tlsext_host_name(c->ssl->connection, reinterpret_cast<char *>(text)) != 0) {
        return true;
    }

    char error[] = "SSL_set_tlsext_host_name(\"%s\") failed";
    ngx_ssl_error(NGX_LOG_ERR, c->log, 0, error, text);
    return false;
}

} // namespace

char *redis_ssl(ngx_conf_t *cf, Settings *settings) {
    TlsSettings &tls = settings->tls;
    auto *ssl = create<ngx_ssl_t>(cf->pool);
    if (ssl == nullptr) { return conf_failed(); }

    ssl->log = cf->log;
    if (ngx_ssl_create(ssl, NGX_SSL_TLSv1_2 | NGX_SSL_TLSv1_3, nullptr) != NGX_OK) {
        return conf_failed();
    }

    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
    if (cleanup == nullptr) {
        ngx_ssl_cleanup_ctx(ssl);
        return conf_failed();
    }

    cleanup->handler = ngx_ssl_cleanup_ctx;
    cleanup->data = ssl;

    SSL_CTX_set_info_callback(ssl->ctx, note_error);

    /* the send buffer may move before OpenSSL has written its bytes */
    SSL_CTX_set_mode(ssl->ctx, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if ((tls.certificate.len != 0
         && ngx_ssl_certificate(cf, ssl, &tls.certificate, &tls.certificate_key, nullptr) != NGX_OK)
        || (tls.trusted_certificate.len != 0
            && ngx_ssl_trusted_certificate(cf, ssl, &tls.trusted_certificate, 1) != NGX_OK)) {
        return conf_failed();
    }

    tls.context = ssl;
    return NGX_CONF_OK;
}

bool tls_handshake(ngx_connection_t *c, const TlsSettings &settings, std::string_view host,
                   void (*handler)(ngx_connection_t *c)) {
    if (ngx_ssl_create_connection(settings.context, c, NGX_SSL_BUFFER | NGX_SSL_CLIENT) != NGX_OK
        || !send_name(c, name_of(settings, host))) {
        return false;
    }

    if (ngx_ssl_handshake(c) == NGX_AGAIN) {
        c->ssl->handler = handler;
    } else {
        handler(c);
    }
    return true;
}

const char *tls_failure(const char *what) {
    static u_char text[256];
    const char *reason = ERR_reason_error_string(last_error);
    const bool is_plain = ERR_GET_REASON(last_error) == SSL_R_WRONG_VERSION_NUMBER;
    last_error = 0;
    if (reason == nullptr) { return what; }

    *ngx_snprintf(text, sizeof(text) - 1, "%s: %s%s", what, reason,
                  is_plain ? ", does the server use TLS?" : "")
        = '\0';
    return reinterpret_cast<const char *>(text);
}

bool tls_verify(ngx_connection_t *c, const TlsSettings &settings, std::string_view host,
                ErrorLog &log) {
    if (!settings.verify) { return true; }

    long result = SSL_get_verify_result(c->ssl->connection);
    if (result != X509_V_OK) {
        log.write(0, "certificate verify error: (%l:%s)", result,
                  X509_verify_cert_error_string(result));
        return false;
    }

    ngx_str_t name = name_of(settings, host);
    if (!is_certificate_of(c, name)) {
        log.write(0, "certificate does not match \"%V\"", &name);
        return false;
    }
    return true;
}

#else

char *redis_ssl(ngx_conf_t *cf, Settings *settings) {
    return conf_error(cf, "\"ssl on\" in limit_sliding_redis \"%V\" needs nginx built with SSL",
                      &settings->name);
}

#endif

} // namespace limit_sliding
