/*
 * Copyright (C) the limit_sliding authors
 */

/* limit_sliding_redis name { ... } */

#include "redis/block_directive.hpp"

#include "ngx/conf.hpp"
#include "ngx/strings.hpp"
#include "redis/block_fields.hpp"
#include "redis/tls.hpp"

namespace limit_sliding {

namespace {

/* The first parameter that the others need and that was not given. */
const char *missing_parameter(const Settings &settings)
{
    if (settings.topology == Topology::kSentinel
        && settings.sentinel.master.len == 0) {
        return "sentinel_master";
    }

    if (settings.servers.nelts == 0) {
        return "server";
    }

    if (settings.credentials.user.len
        && settings.credentials.password.data == nullptr) {
        return "password\" or \"password_file";
    }

    if (settings.sentinel.credentials.user.len
        && settings.sentinel.credentials.password.data == nullptr) {
        return "sentinel_password\" or \"sentinel_password_file";
    }

    if (settings.tls.certificate.len && settings.tls.certificate_key.len == 0) {
        return "ssl_certificate_key";
    }

    if (settings.tls.certificate_key.len && settings.tls.certificate.len == 0) {
        return "ssl_certificate";
    }

    if (settings.tls.on && settings.tls.verify
        && settings.tls.trusted_certificate.len == 0) {
        return "ssl_trusted_certificate";
    }

    return nullptr;
}

/* The first parameter that belongs to sentinels alone. */
const char *sentinel_parameter(const Settings &settings)
{
    return settings.sentinel.master.len                  ? "sentinel_master"
           : settings.sentinel.credentials.user.len      ? "sentinel_user"
           : settings.sentinel.credentials.password.data ? "sentinel_password"
                                                         : nullptr;
}

char *check_block(ngx_conf_t *cf, Settings &settings)
{
    if (const char *missing = missing_parameter(settings)) {
        return conf_error(cf, "limit_sliding_redis \"%V\" has no \"%s\"",
                          &settings.name, missing);
    }

    if (settings.topology == Topology::kStandalone
        && settings.servers.nelts > 1) {
        return conf_error(cf,
                          "limit_sliding_redis \"%V\" has several servers, "
                          "which needs \"topology sentinel\" or "
                          "\"topology cluster\"",
                          &settings.name);
    }

    if (settings.topology == Topology::kCluster) {
        if (settings.database) {
            return conf_error(cf,
                              "\"database\" in limit_sliding_redis \"%V\" must "
                              "be 0 with \"topology cluster\"",
                              &settings.name);
        }

        if (view(settings.key_prefix).find('{') != std::string_view::npos) {
            return conf_error(cf,
                              "\"key_prefix\" \"%V\" in limit_sliding_redis "
                              "\"%V\" must have no \"{\" with "
                              "\"topology cluster\"",
                              &settings.key_prefix, &settings.name);
        }
    }

    const char *word = sentinel_parameter(settings);

    if (word && settings.topology != Topology::kSentinel) {
        return conf_error(cf,
                          "\"%s\" in limit_sliding_redis \"%V\" "
                          "needs \"topology sentinel\"",
                          word, &settings.name);
    }

    return NGX_CONF_OK;
}

} // namespace

char *redis_block(ngx_conf_t *cf, Settings *settings)
{
    if (char *error = parse_block(cf, *settings)) {
        return error;
    }

    settings->defined = true;

    if (char *error = check_block(cf, *settings)) {
        return error;
    }

    return settings->tls.on ? redis_ssl(cf, settings) : NGX_CONF_OK;
}

} // namespace limit_sliding
