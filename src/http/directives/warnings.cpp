/* Copyright (C) the limit_sliding authors */

#include "http/directives/directives.hpp"

#include <algorithm>

#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* An element of the array in which NGINX's module keeps "auth_request_set". */
struct AuthVariable {
    ngx_int_t index;
    ngx_http_complex_value_t value;
    ngx_http_set_variable_pt set_handler;
};

template <class... Args>
void warn_at(ngx_conf_t *cf, const FileLine &where, const char *format, Args... args) {
    ngx_log_error(NGX_LOG_WARN, cf->log, 0, format, args..., where.file, where.line);
}

/* Returns the i-th word of another module's configuration of the location, or 0 if the word is
 * not set or the module is not built.  No header declares the type.  In the modules below, the
 * first word is a pointer or a length that is set if the location uses the module. */
uintptr_t word_of(ngx_conf_t *cf, std::string_view name, size_t i = 0) {
    const auto *ctx = static_cast<ngx_http_conf_ctx_t *>(cf->ctx);
    for (auto **module = cf->cycle->modules; *module != nullptr; module++) {
        if ((*module)->name != name) { continue; }

        const auto *words = static_cast<uintptr_t *>(ctx->loc_conf[(*module)->ctx_index]);
        const bool is_set = words != nullptr && words[i] != static_cast<uintptr_t>(NGX_CONF_UNSET);
        return is_set ? words[i] : 0;
    }

    return 0;
}

/* Returns true if the location begins with "return", which answers before all limits. */
bool is_answered(ngx_conf_t *cf) {
    const auto *codes = reinterpret_cast<ngx_array_t *>(word_of(cf, "ngx_http_rewrite_module"));
    return codes != nullptr && codes->size == 1 && codes->nelts != 0
           && *static_cast<ngx_http_script_code_pt *>(codes->elts) == ngx_http_script_return_code;
}

/* Returns true if "auth_request_set" sets the variable in the location. */
bool is_of_auth_request(ngx_conf_t *cf, std::string_view name) {
    if (word_of(cf, "ngx_http_auth_request_module") == 0) { return false; }

    const auto *set
        = reinterpret_cast<ngx_array_t *>(word_of(cf, "ngx_http_auth_request_module", 2));
    if (set == nullptr || set->size != sizeof(AuthVariable)) { return false; }

    const auto &core = *static_cast<ngx_http_core_main_conf_t *>(
        ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module));
    const auto known = span<ngx_http_variable_t>(core.variables);
    const auto variables = span<AuthVariable>(*set);
    return std::any_of(variables.begin(), variables.end(), [&](auto &variable) {
        return is_same_name(view(known[variable.index].name), name);
    });
}

/* Returns true if the server listens on an address that is neither loopback nor a UNIX socket. */
bool is_public(ngx_conf_t *cf) {
    const auto &core = *static_cast<ngx_http_core_main_conf_t *>(
        ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module));
    const void *server = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    for (auto &port : span<ngx_http_conf_port_t>(*core.ports)) {
        for (auto &addr : span<ngx_http_conf_addr_t>(port.addrs)) {
            const auto servers = span<ngx_http_core_srv_conf_t *>(addr.servers);
            if (std::find(servers.begin(), servers.end(), server) == servers.end()) { continue; }

            const auto text = view(addr.opt.addr_text);
            if (!starts_with(text, "127.") && !starts_with(text, "[::1]")
                && !starts_with(text, "unix:")) {
                return true;
            }
        }
    }

    return false;
}

bool is_access_controlled(ngx_conf_t *cf) {
    for (auto name : {"ngx_http_access_module", "ngx_http_auth_basic_module",
                      "ngx_http_auth_request_module", "ngx_http_auth_jwt_module"}) {
        if (word_of(cf, name) != 0) { return true; }
    }

    /* "limit_except" restricts the methods that write. */
    const auto &location = core_loc_conf(cf);
    return location.internal || location.limit_except != 0;
}

void warn_of_key(ngx_conf_t *cf, const Limit &limit) {
    auto rest = view(limit.zone->key.complex.value);
    while (auto variable = next_variable(rest)) {
        if (is_of_auth_request(cf, *variable)) {
            ngx_str_t name = to_str(*variable);
            warn_at(cf, limit.where,
                    "the key of zone \"%V\" has \"$%V\", which \"auth_request_set\" sets after "
                    "this limit, it needs \"after_auth\" in %s:%ui",
                    &limit.zone->name, &name);
        }
    }
}

/* Returns true for the name of a header field, an argument or a cookie of a request. */
bool is_of_request(std::string_view name) {
    for (std::string_view prefix : {"http_", "arg_", "cookie_"}) {
        if (is_same_name(first(name, prefix.size()), prefix)) { return true; }
    }

    return false;
}

/* Returns true if a place limits by the zone before access is granted. */
bool is_before_auth(const MainConf &main, const ZoneConf *zone) {
    return std::any_of(main.sets.begin(), main.sets.end(), [=](auto *set) {
        return std::any_of(set->limits.begin(), set->limits.end(),
                           [=](auto &limit) { return limit.zone == zone && !limit.after_auth; });
    });
}

} // namespace

void warn_of_zones(ngx_conf_t *cf, const MainConf &main) {
    for (auto *zone : main.zones) {
        const bool is_used = main.owes
                             || std::any_of(main.sets.begin(), main.sets.end(),
                                            [=](auto *set) { return set->has(zone); });
        if (!is_used) {
            warn_at(cf, zone->where,
                    "no \"limit_sliding\" uses the zone \"%V\", it limits nothing in %s:%ui",
                    &zone->name);
        }

        const ngx_str_t &key = zone->key.complex.value;
        if (is_of_request(only_variable(view(key))) && is_before_auth(main, zone)) {
            warn_at(cf, zone->where,
                    "the key \"%V\" of zone \"%V\" is chosen by clients, who may omit or "
                    "invent it, see docs/choose.md#the-key in %s:%ui",
                    &key, &zone->name);
        }
    }
}

void warn_of_place(ngx_conf_t *cf, const LocConf &place, const LimitSet *inherited) {
    const bool is_api = place.api_write != NGX_CONF_UNSET;
    if (place.api_write == 1 && !core_loc_conf(cf).noname && is_public(cf)
        && !is_access_controlled(cf)) {
        warn_at(cf, place.api_where,
                "\"limit_sliding_api write=on\" is open to everybody, restrict it by \"allow\" "
                "and \"deny\" in %s:%ui");
    }

    if (place.set == nullptr || place.set == inherited) { return; }

    const auto &first = *place.set->limits.begin();
    if (is_answered(cf)) {
        warn_at(cf, first.where,
                "\"limit_sliding zone=%V\" limits nothing, as \"return\" answers before it "
                "in %s:%ui",
                &first.zone->name);
    }

    for (auto &limit : place.set->limits) {
        if (!limit.after_auth) { warn_of_key(cf, limit); }
    }

    if (inherited == nullptr || is_api) { return; }

    for (auto &limit : inherited->limits) {
        if (!place.set->has(limit.zone)) {
            warn_at(cf, first.where,
                    "\"limit_sliding zone=%V\" replaces \"limit_sliding zone=%V\" of the level "
                    "above, repeat that to keep both in %s:%ui",
                    &first.zone->name, &limit.zone->name);
        }
    }
}

} // namespace limit_sliding
