/*
 * Copyright (C) the limit_sliding authors
 */

/* The settings of a limit_sliding_redis block, as they were configured. */

#ifndef LIMIT_SLIDING_REDIS_SETTINGS_HPP
#define LIMIT_SLIDING_REDIS_SETTINGS_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

enum class Topology : ngx_uint_t {
    kStandalone = 0,
    kSentinel,
    kCluster,
    kUnset = NGX_CONF_UNSET_UINT
};

enum class OnError : ngx_uint_t {
    kLocal = 0,
    kAllow,
    kDeny,
    kUnset = NGX_CONF_UNSET_UINT
};

enum class KeyFormat : ngx_uint_t {
    kDigest = 0, /* SHA-1, in hex */
    kPlain,
    kUnset = NGX_CONF_UNSET_UINT
};

/* The words of the configuration, by Topology and by OnError.  An empty one
 * ends them. */
extern ngx_str_t topology_words[];
extern ngx_str_t on_error_words[];

/* A "server" of the block. */
struct Server {
    ngx_str_t text; /* as written, for the log */
    ngx_url_t url;  /* has no address while the name is not resolved */
    u_char *file;   /* where it is written */
    ngx_uint_t line;
};

struct Credentials {
    ngx_str_t user;
    ngx_str_t password;
};

struct SentinelSettings {
    ngx_str_t master;
    Credentials credentials;
};

struct TlsSettings {
    ngx_flag_t on;
    ngx_flag_t verify;
    ngx_str_t name; /* empty: the server's */
    ngx_str_t trusted_certificate;
    ngx_str_t certificate;
    ngx_str_t certificate_key;
#if (NGX_HTTP_SSL)
    ngx_ssl_t *context;
#endif
};

struct Settings {
    ngx_str_t name;
    ngx_array_t servers; /* of Server */
    Topology topology;
    SentinelSettings sentinel;
    Credentials credentials;
    ngx_uint_t database;
    ngx_msec_t connect_timeout;
    ngx_msec_t timeout; /* of a reply */
    OnError on_error;
    ngx_str_t key_prefix;
    KeyFormat key_format;
    TlsSettings tls;
    ngx_resolver_t *resolver; /* NULL: names are looked up at start only */

    bool defined;
    u_char *file; /* of the first mention */
    ngx_uint_t line;
};

} // namespace limit_sliding

#endif
