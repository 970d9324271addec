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

/* A field of the settings, or of a struct in them, and so on. */
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

/* Tells whether a time has no unit, and so is one of seconds. */
bool is_number(const ngx_str_t &text) { return ngx_atoi(text.data, text.len) != NGX_ERROR; }

/* Requests wait for Redis.  A time without a unit is one of seconds, which is seldom meant here. */
void warn_of_long_time(ngx_conf_t *cf, ngx_str_t *args, ngx_int_t ms) {
    if (is_number(args[1])) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0, "\"%V %V\" is %i seconds, did you mean \"%Vms\"?",
                           &args[0], &args[1], ms / 1000, &args[1]);
        return;
    }

    ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                       "\"%V %V\" is %i milliseconds, which is long to wait for Redis", &args[0],
                       &args[1], ms);
}

template <auto... path>
char *set_msec(ngx_conf_t *cf, ngx_str_t *args, Settings &settings) {
    ngx_int_t ms = ngx_parse_time(&args[1], 0);
    if (ms == NGX_ERROR || ms < 1 || ms > 60000) {
        const bool is_seconds = ms > 60000 && is_number(args[1]);
        return invalid_value(cf, args,
                             is_seconds ? "a time between 1ms and 60s, not a number of seconds"
                                        : "a time between 1ms and 60s");
    }

    if (ms > 1000) { warn_of_long_time(cf, args, ms); }

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

/* Returns the first parameter that has no effect, because another one is missing, or nullptr.
 * "ssl off" is meant. */
const Parameter *idle_parameter(const Block &block) {
    const bool is_sentinel = block.settings.topology == Topology::kSentinel;
    for (size_t i = 0; i < std::size(kParameters); i++) {
        const auto &parameter = kParameters[i];
        if (block.given[i]
            && ((parameter.needs == kNeedsSentinel && !is_sentinel)
                || (parameter.needs == kNeedsTls && !block.has("ssl")))) {
            return &parameter;
        }
    }
    return nullptr;
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

    const auto *idle = error == NGX_CONF_OK ? idle_parameter(block) : nullptr;
    return idle == nullptr
               ? error
               : conf_error(cf, "\"%*s\" in limit_sliding_redis \"%V\" needs \"%s\"",
                            idle->name.size(), idle->name.data(), &settings.name, idle->needs);
}

/* Returns the first missing parameter that others need, or nullptr. */
const char *missing_parameter(const Settings &settings) {
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
        if (is_missing) { return name; }
    }
    return nullptr;
}

char *check_block(ngx_conf_t *cf, Settings &settings) {
    if (const char *missing = missing_parameter(settings)) {
        return conf_error(cf, "limit_sliding_redis \"%V\" has no \"%s\"", &settings.name, missing);
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

/* The address of this tells our shared memory from that of others. */
ngx_uint_t redis_tag;

/* Returns true if it has name servers.  NGINX has an array of them, Angie a list. */
bool has_servers(const ngx_resolver_t &resolver) {
#if (angie_version >= 1012000)
    return resolver.connections != nullptr;
#else
    return resolver.connections.nelts != 0;
#endif
}

/* Without a resolver names are looked up now, as names of upstreams are.  So is "localhost" in any
 * case: name servers need not know it (RFC 6761), and Angie and Tengine have a resolver even where
 * none is configured.  A name that is not found is no reason not to start: its Redis is away, as
 * one that does not answer.  Without a resolver it cannot be looked up again later, since that
 * would block a worker, but it is by each reload. */
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
    u_char hex[kSha1Bytes];
    (void)append_sha1(hex, text);
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

/* Copies addresses, as the last cycle's memory goes with it, but not their
 * names, which nobody uses. */
bool copy_addresses(ngx_pool_t *pool, ngx_url_t &to, const ngx_url_t &from) {
    auto *addrs = static_cast<ngx_addr_t *>(ngx_pcalloc(pool, from.naddrs * sizeof(ngx_addr_t)));
    if (addrs == nullptr) { return false; }

    for (ngx_uint_t i = 0; i < from.naddrs; i++) {
        socklen_t len = from.addrs[i].socklen;
        addrs[i].socklen = len;
        addrs[i].sockaddr = static_cast<sockaddr *>(ngx_palloc(pool, len));
        if (addrs[i].sockaddr == nullptr) { return false; }

        ngx_memcpy(addrs[i].sockaddr, from.addrs[i].sockaddr, len);
    }

    to.addrs = addrs;
    to.naddrs = from.naddrs;
    return true;
}

/* Keeps addresses of the last cycle for names that were not found: a reload
 * while the name server is away loses no Redis. */
bool keep_addresses(Redis &redis, const Settings &last, ngx_log_t *log) {
    Settings &settings = redis.settings;
    for (Server &server : settings.servers) {
        const Server *known = last.find_server(server.text);
        if (settings.resolver || server.url.naddrs || known == nullptr || !known->url.naddrs) {
            continue;
        }

        if (!copy_addresses(redis.pool, server.url, known->url)) { return false; }

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

/* Adds a little memory that all workers share, also with the next cycle's. */
bool add_shared(ngx_conf_t *cf, Redis &redis) {
    /* no zone of a user's is called so, but for one with a blank */
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
    if (resolver && has_servers(*resolver)) { redis->settings.resolver = resolver; }

    redis->pool = cf->pool;
    if (redis->algorithms == 0) { return true; /* no zone uses it */ }

    return look_up_servers(cf, redis->settings) && init_probe(cf, *redis) && init_script(cf, *redis)
           && add_shared(cf, *redis);
}

} // namespace limit_sliding
