/* Copyright (C) the limit_sliding authors */

#include "redis/block/redis_block.hpp"

#include "core/policy/shape.hpp"
#include "ngx/conf.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/protocol/scripts.hpp"
#include "redis/wire/tls.hpp"

namespace limit_sliding {

namespace {

constexpr std::string_view kFlagWords[] = {"off", "on"};

/* Returns the field of the settings at this path of members. */
template <auto... path>
auto &at(Settings &settings) {
    return (settings.*....*path);
}

char *invalid_value(ngx_conf_t *cf, ngx_str_t *args, const char *expected) {
    return conf_error(cf, "invalid value \"%V\" of \"%V\", it must be %s", &args[1], &args[0],
                      expected);
}

/* Refuses the URL of other clients, "rediss://user:password@host:6379/0".  The message has no
 * credentials. */
char *refuse_url(ngx_conf_t *cf, std::string_view url) {
    const bool is_tls = starts_with(url, "rediss:") || starts_with(url, "valkeys:");
    const size_t end = url.rfind('@');
    url.remove_prefix(end != url.npos ? end + 1 : url.find("://") + 3);
    url = first(url, url.find('/'));
    return conf_error(cf,
                      "\"server\" must be an address without scheme and credentials, write "
                      "\"server %*s\"%s",
                      url.size(), url.data(), is_tls ? " and \"ssl on\"" : "");
}

char *add_server(ngx_conf_t *cf, ngx_str_t *args, Settings &settings) {
    const auto text = view(args[1]);
    if (!starts_with(text, "unix:")
        && (text.find("://") != text.npos || text.find('@') != text.npos)) {
        return refuse_url(cf, text);
    }

    ngx_url_t url{};
    url.url = args[1];
    url.default_port = 6379;
    url.no_resolve = 1; /* until it is known whether there is a resolver */

    if (ngx_parse_url(cf->pool, &url) != NGX_OK) {
        return conf_error(cf, "invalid server \"%V\"%s%s", &args[1], url.err ? ": " : "",
                          url.err ? url.err : "");
    }

    /* NGINX resolves a name in lower case, and Redis may write the same one otherwise */
    if (url.family != AF_UNIX) { ngx_strlow(url.host.data, url.host.data, url.host.len); }

    return conf_result(settings.servers.add(cf->pool, {args[1], url, file_line_of(cf)}));
}

template <auto... path>
char *set_text(ngx_conf_t *, ngx_str_t *args, Settings &settings) {
    at<path...>(settings) = args[1];
    return NGX_CONF_OK;
}

template <auto... path>
char *set_password_file(ngx_conf_t *cf, ngx_str_t *args, Settings &settings) {
    auto *&file = at<path...>(settings);
    file = create<PasswordFile>(cf->pool);
    return file != nullptr ? file->set(cf, args[1]) : conf_failed();
}

char *set_database(ngx_conf_t *cf, ngx_str_t *args, Settings &settings) {
    ngx_int_t n = ngx_atoi(args[1].data, args[1].len);
    if (n == NGX_ERROR || n > NGX_MAX_INT32_VALUE) { return invalid_value(cf, args, "a number"); }

    settings.database = n;
    return NGX_CONF_OK;
}

/* Returns true if a time has no unit, which makes it a number of seconds. */
bool is_number(const ngx_str_t &text) { return ngx_atoi(text.data, text.len) != NGX_ERROR; }

/* Sets a time for which requests wait for Redis.  Seconds are seldom meant. */
template <auto... path>
char *set_msec(ngx_conf_t *cf, ngx_str_t *args, Settings &settings) {
    const ngx_int_t ms = ngx_parse_time(&args[1], 0);
    const bool is_seconds = is_number(args[1]);
    if (ms == NGX_ERROR || ms < 1 || ms > 60000) {
        return invalid_value(cf, args,
                             is_seconds && ms > 60000
                                 ? "a time between 1ms and 60s, not a number of seconds"
                                 : "a time between 1ms and 60s");
    }

    if (ms > 1000 && is_seconds) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0, "\"%V %V\" is %i seconds, did you mean \"%Vms\"?",
                           &args[0], &args[1], ms / 1000, &args[1]);
    } else if (ms > 1000) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"%V %V\" is %i milliseconds, which is long to wait for Redis",
                           &args[0], &args[1], ms);
    }

    at<path...>(settings) = ms;
    return NGX_CONF_OK;
}

/* Sets the field to the number of the word. */
template <auto &words, auto... path>
char *set_word(ngx_conf_t *cf, ngx_str_t *args, Settings &settings) {
    u_char text[NGX_MAX_CONF_ERRSTR];
    u_char *p = text;
    size_t i = 0;
    for (std::string_view word : words) {
        if (word == view(args[1])) {
            auto &field = at<path...>(settings);
            field = static_cast<std::remove_reference_t<decltype(field)>>(i);
            return NGX_CONF_OK;
        }

        const char *separator = i == 0 ? "" : i + 1 == std::size(words) ? " or " : ", ";
        p = ngx_slprintf(p, text + sizeof(text) - 1, "%s\"%*s\"", separator, word.size(),
                         word.data());
        i++;
    }

    *p = '\0';
    return invalid_value(cf, args, reinterpret_cast<char *>(text));
}

struct Parameter {
    std::string_view name;
    char *(*set)(ngx_conf_t *cf, ngx_str_t *args, Settings &settings);
    const char *needs = nullptr;  /* without this, the parameter has no effect */
    std::string_view same = name; /* the parameter that sets the same */
};

constexpr auto kNeedsSentinel = "topology sentinel";
constexpr auto kNeedsTls = "ssl on";

constexpr auto kTls = &Settings::tls;
constexpr auto kSentinel = &Settings::sentinel;
constexpr auto kSentinelCredentials = &SentinelSettings::credentials;
constexpr auto kCredentials = &Settings::credentials;
constexpr auto kUser = &Credentials::user;
constexpr auto kPassword = &Credentials::password;
constexpr auto kPasswordFile = &Credentials::password_file;

constexpr Parameter kParameters[] = {
    {"server", add_server},
    {"topology", set_word<kTopologyWords, &Settings::topology>},
    {"sentinel_master", set_text<kSentinel, &SentinelSettings::master>, kNeedsSentinel},
    {"sentinel_user", set_text<kSentinel, kSentinelCredentials, kUser>, kNeedsSentinel},
    {"sentinel_password", set_text<kSentinel, kSentinelCredentials, kPassword>, kNeedsSentinel},
    {"sentinel_password_file", set_password_file<kSentinel, kSentinelCredentials, kPasswordFile>,
     kNeedsSentinel, "sentinel_password"},
    {"user", set_text<kCredentials, kUser>},
    {"password", set_text<kCredentials, kPassword>},
    {"password_file", set_password_file<kCredentials, kPasswordFile>, nullptr, "password"},
    {"database", set_database},
    {"ssl", set_word<kFlagWords, kTls, &TlsSettings::on>},
    {"ssl_name", set_text<kTls, &TlsSettings::name>, kNeedsTls},
    {"ssl_trusted_certificate", set_text<kTls, &TlsSettings::trusted_certificate>, kNeedsTls},
    {"ssl_certificate", set_text<kTls, &TlsSettings::certificate>, kNeedsTls},
    {"ssl_certificate_key", set_text<kTls, &TlsSettings::certificate_key>, kNeedsTls},
    {"ssl_verify", set_word<kFlagWords, kTls, &TlsSettings::verify>, kNeedsTls},
    {"connect_timeout", set_msec<&Settings::connect_timeout>},
    {"timeout", set_msec<&Settings::timeout>},
    {"on_error", set_word<kOnErrorWords, &Settings::on_error>},
    {"key_prefix", set_text<&Settings::key_prefix>},
    {"key_format", set_word<kKeyFormatWords, &Settings::key_format>},
};

const Parameter *find_parameter(std::string_view name) {
    for (const Parameter &parameter : kParameters) {
        if (parameter.name == name) { return &parameter; }
    }
    return nullptr;
}

/* A block that is being read. */
struct Block {
    Settings &settings;
    bool given[std::size(kParameters)];

    bool has(std::string_view name) const { return given[find_parameter(name) - kParameters]; }
};

/* Logs a line that names no parameter, or has not one value; returns the error.
 * Elsewhere values are written as "timeout=50ms", with spaces or without. */
char *malformed(ngx_conf_t *cf, const Block &block) {
    auto *args = static_cast<ngx_str_t *>(cf->args->elts);
    const auto word = view(args[0]);
    const auto name = first(word, word.find('='));
    const bool is_secret = name.find("pas") != name.npos; /* "password", perhaps misspelt */
    if (is_secret) { args[0].len = name.size(); }

    const bool is_known = find_parameter(name) != nullptr;
    if (is_known && name.size() != word.size()) {
        auto value = word;
        value.remove_prefix(name.size() + 1);
        if (is_secret) {
            value = "...";
        } else if (value.empty()) {
            value = cf->args->nelts > 1 ? view(args[1]) : "...";
        }

        return conf_error(cf,
                          "unknown parameter \"%V\" in limit_sliding_redis \"%V\", did you mean "
                          "\"%*s %*s\"?",
                          &args[0], &block.settings.name, name.size(), name.data(), value.size(),
                          value.data());
    }

    for (const Parameter &parameter : kParameters) {
        if (!is_known && (is_similar(name, parameter.name) || is_misspelt(name, parameter.name))) {
            return conf_error(
                cf,
                "unknown parameter \"%V\" in limit_sliding_redis \"%V\", did you mean "
                "\"%*s\"?",
                &args[0], &block.settings.name, parameter.name.size(), parameter.name.data());
        }
    }

    if (name == "lease" || name == "sync") {
        return conf_error(cf, "\"%V\" belongs to the directive \"limit_sliding_zone\"", &args[0]);
    }

    if (!is_known) {
        return conf_error(cf, "unknown parameter \"%V\" in limit_sliding_redis \"%V\"", &args[0],
                          &block.settings.name);
    }

    if (!is_secret && cf->args->nelts == 3 && view(args[1]) == "=") {
        return conf_error(cf, "\"%V\" must have one value, did you mean \"%V %V\"?", &args[0],
                          &args[0], &args[2]);
    }

    if (!is_secret && cf->args->nelts == 3 && is_number(args[1]) && !is_number(args[2])) {
        return conf_error(cf, "\"%V\" must have one value, did you mean \"%V %V%V\"?", &args[0],
                          &args[0], &args[1], &args[2]);
    }

    return conf_error(cf, "\"%V\" must have one value", &args[0]);
}

/* The handler of a line of the block. */
char *read_parameter(ngx_conf_t *cf, ngx_command_t *dummy, void *conf) {
    auto *block = static_cast<Block *>(conf);
    auto *args = static_cast<ngx_str_t *>(cf->args->elts);
    if (view(args[0]) == "include" && cf->args->nelts == 2) {
        return ngx_conf_include(cf, dummy, conf);
    }

    const Parameter *parameter = find_parameter(view(args[0]));
    if (parameter == nullptr || cf->args->nelts != 2) { return malformed(cf, *block); }

    bool &given = block->given[find_parameter(parameter->same) - kParameters];
    if (given && parameter->set != add_server) {
        return conf_error(cf, "duplicate parameter \"%V\"", &args[0]);
    }

    given = true;
    return parameter->set(cf, args, block->settings);
}

char *read_parameters(ngx_conf_t *cf, Settings &settings) {
    settings.tls.verify = 1;
    settings.connect_timeout = 100;
    settings.timeout = 50;
    settings.key_prefix = ngx_string("limit_sliding:");
    Block block{settings, {}};
    ngx_conf_t saved = *cf;
    cf->handler = read_parameter;
    /* it is a void *, or a char * in an old NGINX */
    cf->handler_conf = reinterpret_cast<decltype(cf->handler_conf)>(&block);
    char *error = ngx_conf_parse(cf, nullptr);
    *cf = saved;
    if (error != NGX_CONF_OK) { return error; }

    /* a parameter has no effect if the one that it needs is missing; "ssl off" is meant */
    const bool has_sentinels = settings.topology == Topology::kSentinel, has_tls = block.has("ssl");
    for (const auto &[name, set, needs, same] : kParameters) {
        const bool is_idle
            = (needs == kNeedsSentinel && !has_sentinels) || (needs == kNeedsTls && !has_tls);
        if (is_idle && block.has(name)) {
            return conf_error(cf, "\"%*s\" in limit_sliding_redis \"%V\" needs \"%s\"", name.size(),
                              name.data(), &settings.name, needs);
        }
    }
    return NGX_CONF_OK;
}

char *check_block(ngx_conf_t *cf, Settings &settings) {
    const Credentials &sentinel = settings.sentinel.credentials;
    const Credentials &credentials = settings.credentials;
    const TlsSettings &tls = settings.tls;
    const struct {
        bool is_missing;
        const char *name;
    } needed[] = {
        {settings.topology == Topology::kSentinel && settings.sentinel.master.len == 0,
         "sentinel_master"},
        {settings.servers.empty(), "server"},
        {credentials.user.len && !credentials.has_password(), "password\" or \"password_file"},
        {sentinel.user.len && !sentinel.has_password(),
         "sentinel_password\" or \"sentinel_password_file"},
        {tls.certificate.len && tls.certificate_key.len == 0, "ssl_certificate_key"},
        {tls.certificate_key.len && tls.certificate.len == 0, "ssl_certificate"},
        {tls.on && tls.verify && tls.trusted_certificate.len == 0, "ssl_trusted_certificate"},
    };

    for (const auto &[is_missing, name] : needed) {
        if (is_missing) {
            return conf_error(cf, "limit_sliding_redis \"%V\" has no \"%s\"", &settings.name, name);
        }
    }

    if (settings.topology == Topology::kStandalone && settings.servers.size() > 1) {
        return conf_error(cf,
                          "limit_sliding_redis \"%V\" has several servers, "
                          "which needs \"topology sentinel\" or \"topology cluster\"",
                          &settings.name);
    }

    const bool is_cluster = settings.topology == Topology::kCluster;
    if (is_cluster && settings.database) {
        return conf_error(cf,
                          "\"database\" in limit_sliding_redis \"%V\" must be 0 with "
                          "\"topology cluster\"",
                          &settings.name);
    }

    if (is_cluster && view(settings.key_prefix).find('{') != std::string_view::npos) {
        return conf_error(cf,
                          "\"key_prefix\" \"%V\" in limit_sliding_redis \"%V\" must have no "
                          "\"{\" with \"topology cluster\"",
                          &settings.key_prefix, &settings.name);
    }

    return NGX_CONF_OK;
}

/* The address of this tag marks shared memory of this module. */
ngx_uint_t redis_tag;

/* Looks up names now if there is no resolver, as NGINX does for upstreams.  Looks up "localhost" in
 * any case: name servers need not know it (RFC 6761), and Angie and Tengine have a resolver even
 * where none is configured.  NGINX starts even if a name is not found.  Its Redis is away until a
 * reload finds the name, because a later look-up without a resolver would block a worker. */
bool look_up_servers(ngx_conf_t *cf, Settings &settings) {
    for (Server &server : settings.servers) {
        ngx_url_t &url = server.url;
        const bool is_local = is_same_name(view(url.host), "localhost");
        if (url.naddrs || (settings.resolver && !is_local)) { continue; }

        const bool is_found = ngx_inet_resolve_host(cf->pool, &url) == NGX_OK;
        if (!is_found && url.err == nullptr) { return false; }

        if (is_found && is_local) { continue; }

        ngx_log_error(
            NGX_LOG_WARN, cf->log, 0,
            "%s in server \"%V\" of limit_sliding_redis \"%V\", without a \"resolver\" %s, "
            "in %s:%ui",
            is_found ? "host name" : url.err, &server.text, &settings.name,
            is_found ? "a change of its addresses needs a reload"
                     : "it is away until a reload finds it",
            server.where.file, server.where.line);
    }
    return true;
}

/* Probes are of the first algorithm that the script knows, with keys of their own. */
bool init_probe(ngx_conf_t *cf, Redis &redis) {
    redis.probe_policy.window_ms = 1000;
    redis.probe_policy.algorithm = static_cast<Algorithm>(__builtin_ctzl(redis.algorithms));
    redis.probe_zone.redis = &redis;
    redis.probe_zone.policy = &redis.probe_policy;
    redis.probe_zone.prefix = join(cf->pool, view(redis.settings.key_prefix), "{");
    redis.probe_zone.shape = join(cf->pool, "}:", Shape(redis.probe_policy).text());
    return redis.probe_zone.prefix.data != nullptr && redis.probe_zone.shape.data != nullptr;
}

/* Returns the digest of a script, in hex; nullptr as data: no memory. */
ngx_str_t sha1_of(ngx_pool_t *pool, std::string_view text) {
    Sha1 sha1(text);
    u_char hex[2 * sizeof(sha1.bytes)];
    (void)ngx_hex_dump(hex, sha1.bytes, sizeof(sha1.bytes));
    return join(pool, view(hex, sizeof(hex)));
}

/* Makes the scripts that the zones need. */
bool init_script(ngx_conf_t *cf, Redis &redis) {
    auto algorithms = static_cast<unsigned>(redis.algorithms);
    if (redis.settings.topology == Topology::kCluster) { algorithms |= kScriptCluster; }
    if (redis.settles) { algorithms |= kScriptSettles; }
    if (redis.syncs) { algorithms |= kScriptSyncs; }
    if (redis.gives_back) { algorithms |= kScriptGivesBack; }
    if (redis.records) { algorithms |= kScriptRejected; }

    ngx_str_t &text = redis.script;
    text.len = script(algorithms, nullptr, 0);
    text.data = alloc_bytes(cf->pool, text.len + 1);
    if (text.data == nullptr) { return false; }

    (void)script(algorithms, reinterpret_cast<char *>(text.data), text.len + 1);
    redis.script_sha1 = sha1_of(cf->pool, view(text));
    redis.bans_sha1 = sha1_of(cf->pool, bans_script());
    redis.heartbeat_sha1 = sha1_of(cf->pool, heartbeat_script());
    redis.hold_sha1 = sha1_of(cf->pool, hold_script());
    return redis.script_sha1.data != nullptr && redis.bans_sha1.data != nullptr
           && redis.heartbeat_sha1.data != nullptr && redis.hold_sha1.data != nullptr;
}

/* Keeps addresses of the last cycle for names that were not found: a reload while the name server
 * is away loses no Redis.  Copies them, because the memory of that cycle is freed, but not their
 * names, which nobody uses. */
bool keep_addresses(Redis &redis, const Settings &last, ngx_log_t *log) {
    const Settings &settings = redis.settings;
    for (Server &server : settings.servers) {
        const Server *known = last.find_server(server.text);
        if (settings.resolver || server.url.naddrs || known == nullptr || !known->url.naddrs) {
            continue;
        }

        const Span<ngx_addr_t> from(known->url.addrs, known->url.naddrs);
        server.url.addrs = alloc<ngx_addr_t>(redis.pool, from.size());
        if (server.url.addrs == nullptr) { return false; }

        for (const ngx_addr_t &address : from) {
            void *copy = ngx_palloc(redis.pool, address.socklen);
            if (copy == nullptr) { return false; }

            ngx_memcpy(copy, address.sockaddr, address.socklen);
            server.url.addrs[server.url.naddrs++]
                = {static_cast<sockaddr *>(copy), address.socklen, {}};
        }

        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "server \"%V\" of limit_sliding_redis \"%V\" keeps its last addresses",
                      &server.text, &settings.name);
    }
    return true;
}

/* The handler of the shared memory; `data` is the Redis of the last cycle. */
ngx_int_t init_shared(ngx_shm_zone_t *shm_zone, void *data) {
    auto &redis = *static_cast<Redis *>(shm_zone->data);
    if (data) {
        const auto &last = *static_cast<Redis *>(data);
        redis.shared = last.shared;
        return keep_addresses(redis, last.settings, shm_zone->shm.log) ? NGX_OK : NGX_ERROR;
    }

    auto *pool = reinterpret_cast<ngx_slab_pool_t *>(shm_zone->shm.addr);
    redis.shared = static_cast<RedisShared *>(ngx_slab_calloc(pool, sizeof(RedisShared)));
    return redis.shared ? NGX_OK : NGX_ERROR;
}

/* Adds the memory that the workers of this cycle and the next ones share. */
bool add_shared(ngx_conf_t *cf, Redis &redis) {
    /* a user's zone has this name only if it is given with a blank */
    ngx_str_t name = join(cf->pool, "limit_sliding_redis ", view(redis.settings.name));
    if (name.data == nullptr) { return false; }

    redis.shm_zone = ngx_shared_memory_add(cf, &name, 16 * ngx_pagesize, &redis_tag);
    if (redis.shm_zone == nullptr) { return false; }

    redis.shm_zone->init = init_shared;
    redis.shm_zone->data = &redis;
    return true;
}

} // namespace

char *redis_block(ngx_conf_t *cf, Settings *settings) {
    if (char *error = read_parameters(cf, *settings)) { return error; }

    settings->defined = true;
    if (char *error = check_block(cf, *settings)) { return error; }
    return settings->tls.on ? redis_ssl(cf, settings) : NGX_CONF_OK;
}

bool redis_init(ngx_conf_t *cf, Redis *redis, ngx_resolver_t *resolver) {
    /* NGINX has an array of name servers, Angie a list */
#if (angie_version >= 1012000)
    const bool has_servers = resolver && resolver->connections != nullptr;
#else
    const bool has_servers = resolver && resolver->connections.nelts != 0;
#endif
    if (has_servers) { redis->settings.resolver = resolver; }

    redis->pool = cf->pool;
    if (redis->algorithms == 0) { return true; /* no zone uses it */ }

    return look_up_servers(cf, redis->settings) && init_probe(cf, *redis) && init_script(cf, *redis)
           && add_shared(cf, *redis);
}

} // namespace limit_sliding
