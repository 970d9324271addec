/* Copyright (C) the limit_sliding authors */

/* The settings of a limit_sliding_redis block. */

#pragma once

#include <string_view>

#include "ngx/conf.hpp"
#include "ngx/containers.hpp"
#include "ngx/strings.hpp"
#include "redis/wire/password_file.hpp"

namespace limit_sliding {

enum class Topology : ngx_uint_t { kStandalone = 0, kSentinel, kCluster };

enum class OnError : ngx_uint_t { kLocal = 0, kAllow, kDeny };

enum class KeyFormat : ngx_uint_t {
    kDigest = 0, /* SHA-1, in hex */
    kPlain
};

/* The words of the configuration for these enumerations. */
inline constexpr std::string_view kTopologyWords[] = {"standalone", "sentinel", "cluster"};
inline constexpr std::string_view kOnErrorWords[] = {"local", "allow", "deny"};
inline constexpr std::string_view kKeyFormatWords[] = {"digest", "plain"};

/* A server of the block. */
struct Server {
    ngx_str_t text; /* as configured, for the log */
    ngx_url_t url;  /* without addresses if the name is resolved at run time */
    FileLine where;
};

struct Credentials {
    bool has_password() const { return password.data != nullptr || password_file != nullptr; }

    ngx_str_t user;
    ngx_str_t password;
    PasswordFile *password_file; /* nullptr: `password` is the password, if there is one */
};

struct SentinelSettings {
    ngx_str_t master;
    Credentials credentials;
};

struct TlsSettings {
    ngx_flag_t on;
    ngx_flag_t verify;
    ngx_str_t name; /* to send and to verify; empty: the host of the server */
    ngx_str_t trusted_certificate;
    ngx_str_t certificate;
    ngx_str_t certificate_key;
#if (NGX_HTTP_SSL)
    ngx_ssl_t *context;
#endif
};

struct Settings {
    /* Returns the server that is configured by this text, or nullptr. */
    const Server *find_server(const ngx_str_t &text) const {
        for (const Server &server : servers) {
            if (view(server.text) == view(text)) { return &server; }
        }
        return nullptr;
    }

    ngx_str_t name;
    Array<Server> servers;
    Topology topology;
    SentinelSettings sentinel;
    Credentials credentials;
    ngx_uint_t database;
    ngx_msec_t connect_timeout; /* ms to connect, with TLS and greeting */
    ngx_msec_t timeout;         /* ms to wait for a reply */
    OnError on_error;
    ngx_str_t key_prefix;
    KeyFormat key_format;
    TlsSettings tls;
    ngx_msec_t clock_age_ms;  /* largest age of NGINX's time: "timer_resolution" */
    ngx_resolver_t *resolver; /* nullptr: names are resolved only at start */

    bool defined;   /* the block was read; false: a zone has only mentioned its name */
    FileLine where; /* first mention of the block */
};

} // namespace limit_sliding
