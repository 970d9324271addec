
/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/tls.hpp"
#include "ngx/ngx.hpp"
#include "redis/cluster.hpp"

namespace limit_sliding {

#if (NGX_HTTP_SSL)

static void node_handshake_handler(ngx_connection_t *c);
static ngx_int_t node_server_name(Node *node);
static const ngx_str_t *node_ssl_name(Node *node);

char *redis_ssl(ngx_conf_t *cf, Settings *settings)
{
    ngx_ssl_t *ssl;
    ngx_pool_cleanup_t *cln;

    ssl = ngx_pcalloc(cf->pool, sizeof(ngx_ssl_t));
    if (ssl == NULL) {
        return NGX_CONF_ERROR;
    }

    ssl->log = cf->log;

    if (ngx_ssl_create(ssl, NGX_SSL_TLSv1_2 | NGX_SSL_TLSv1_3, NULL)
        != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        ngx_ssl_cleanup_ctx(ssl);
        return NGX_CONF_ERROR;
    }

    cln->handler = ngx_ssl_cleanup_ctx;
    cln->data = ssl;

    /* a node's buffer may grow while OpenSSL waits to write what is in it */

    SSL_CTX_set_mode(ssl->ctx, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);

    if (settings->tls.certificate.len
        && ngx_ssl_certificate(cf, ssl, &settings->tls.certificate,
                               &settings->tls.certificate_key, NULL)
               != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (settings->tls.trusted_certificate.len
        && ngx_ssl_trusted_certificate(cf, ssl,
                                       &settings->tls.trusted_certificate, 1)
               != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    settings->tls.context = ssl;

    return NGX_CONF_OK;
}

void node_handshake(Node *node)
{
    ngx_int_t rc;
    ngx_connection_t *c;

    c = node->peer.connection;

    if (ngx_ssl_create_connection(node->settings->tls.context, c,
                                  NGX_SSL_BUFFER | NGX_SSL_CLIENT)
            != NGX_OK
        || node_server_name(node) != NGX_OK) {
        node->fail(0, "no TLS");
        return;
    }

    rc = ngx_ssl_handshake(c);

    if (rc == NGX_AGAIN) {
        c->ssl->handler = node_handshake_handler;
        return;
    }

    node_handshake_handler(c);
}

static void node_handshake_handler(ngx_connection_t *c)
{
    long rc;
    Node *node;

    node = c->data;

    if (!c->ssl->handshaked) {
        node->fail(0, "TLS handshake failed");
        return;
    }

    if (node->settings->tls.verify) {
        rc = SSL_get_verify_result(c->ssl->connection);

        if (rc != X509_V_OK) {
            node->log->write(0, "certificate verify error: (%l:%s)", rc,
                             X509_verify_cert_error_string(rc));
            node->fail(0, NULL);
            return;
        }

        if (ngx_ssl_check_host(c, node_ssl_name(node)) != NGX_OK) {
            node->log->write(0, "certificate does not match \"%V\"",
                             node_ssl_name(node));
            node->fail(0, NULL);
            return;
        }
    }

    node_greet(node);
}

static const ngx_str_t *node_ssl_name(Node *node)
{
    return node->settings->tls.name.len ? &node->settings->tls.name
                                        : &node->server->url.host;
}

/* Literal addresses are not permitted as such, by RFC 6066. */

static ngx_int_t node_server_name(Node *node)
{
    u_char *text;
    const ngx_str_t *name;
    ngx_connection_t *c;

    c = node->peer.connection;
    name = node_ssl_name(node);

    if (name->len == 0 || ngx_strlchr(name->data, name->data + name->len, ':')
        || ngx_inet_addr(name->data, name->len) != INADDR_NONE) {
        return NGX_OK;
    }

    text = ngx_pnalloc(c->pool, name->len + 1);
    if (text == NULL) {
        return NGX_ERROR;
    }

    (void)ngx_cpystrn(text, name->data, name->len + 1);

    if (SSL_set_tlsext_host_name(c->ssl->connection, (char *)text) == 0) {
        ngx_ssl_error(NGX_LOG_ERR, c->log, 0,
                      "SSL_set_tlsext_host_name(\"%s\") failed", text);
        return NGX_ERROR;
    }

    return NGX_OK;
}

#else

char *redis_ssl(ngx_conf_t *cf, Settings *settings)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"ssl on\" in limit_sliding_redis \"%V\" needs nginx "
                       "built with SSL",
                       &settings->name);
    return NGX_CONF_ERROR;
}

/* Not reached: nothing is configured so. */

void node_handshake(Node *node)
{
    node->fail(0, "no TLS");
}

#endif

} // namespace limit_sliding
