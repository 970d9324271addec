/* Copyright (C) the limit_sliding authors */

/* Notices about what a reload changes of the zones of the last cycle. */

#include "http/conf/zone_conf.hpp"

#include <algorithm>

#include "ngx/strings.hpp"
#include "redis/errands/redis_instance.hpp"

namespace limit_sliding {
namespace {

/* The most bytes of a notice about a change. */
constexpr size_t kTextMax = 1024;

u_char *print_precision(u_char *p, u_char *last, const Policy &policy) {
    return policy.precision == 0 ? ngx_slprintf(p, last, "auto")
                                 : ngx_slprintf(p, last, "%uD", policy.precision);
}

u_char *print_window(u_char *p, u_char *last, const Policy &policy) {
    if (policy.calendar == Calendar::kNone) {
        return ngx_slprintf(p, last, "%uL ms", policy.window_ms);
    }

    ngx_str_t name = to_str(name_of(policy.calendar));
    return ngx_slprintf(p, last, "a calendar %V", &name);
}

/* Returns the first difference between the parts of the memory, or nullptr. */
const char *differing_part(const ZoneConf &zone, const ZoneConf &old) {
    if (zone.is_remote() != old.is_remote()) {
        return zone.is_remote() ? "it is in redis now" : "it was in redis";
    }

    if (zone.remote.lease != 0 && old.remote.leases == nullptr) { return "it has leases now"; }

    if (zone.rejected.are_banned() && old.memory.aside.bans == nullptr) {
        return "it has penalties now";
    }

    if (zone.may_owe && old.memory.aside.debts == nullptr) { return "its keys may owe now"; }

    if ((zone.remote.sync_ms == 0) != (old.remote.sync_ms == 0)) {
        return zone.remote.sync_ms != 0 ? "it has sync now" : "it had sync";
    }

    return nullptr;
}

/* Prints the first difference after which a zone finds nothing of its keys in Redis. */
u_char *print_move(u_char *p, u_char *last, const Settings &settings, const Settings &old) {
    auto print = [=](const char *format, auto... values) {
        return ngx_slprintf(p, last, format, values...);
    };
    const auto differ = [](const ngx_str_t &a, const ngx_str_t &b) { return view(a) != view(b); };

    if (differ(settings.key_prefix, old.key_prefix)) {
        return print("its key_prefix was \"%V\", now \"%V\"", &old.key_prefix,
                     &settings.key_prefix);
    }

    if (settings.key_format != old.key_format) {
        return print("its key_format was %s, now %s",
                     kKeyFormatWords[index_of(old.key_format)].data(),
                     kKeyFormatWords[index_of(settings.key_format)].data());
    }

    if (settings.database != old.database) {
        return print("its database was %ui, now %ui", old.database, settings.database);
    }

    if (differ(settings.sentinel.master, old.sentinel.master)
        && settings.topology == old.topology) {
        return print("its master was \"%V\", now \"%V\"", &old.sentinel.master,
                     &settings.sentinel.master);
    }

    /* blocks with a common server are of the same Redis */
    if (std::none_of(settings.servers.begin(), settings.servers.end(),
                     [&](const Server &server) { return old.find_server(server.text); })) {
        return print("its server was \"%V\", now \"%V\"", &old.servers[0].text,
                     &settings.servers[0].text);
    }

    return p;
}

} // namespace

u_char *print_difference(u_char *p, u_char *last, const ZoneConf &zone, const ZoneConf &old) {
    const auto &key = zone.key.complex.value, &old_key = old.key.complex.value;
    const auto &policy = zone.policy, &old_policy = old.policy;
    auto print = [=](const char *format, auto... values) {
        return ngx_slprintf(p, last, format, values...);
    };

    if (view(key) != view(old_key)) {
        return print("its key was \"%V\", now \"%V\"", &old_key, &key);
    }

    if (policy.algorithm != old_policy.algorithm) {
        return print("its algorithm was %V, now %V",
                     &algorithm_names[index_of(old_policy.algorithm)],
                     &algorithm_names[index_of(policy.algorithm)]);
    }

    if (policy.window() != old_policy.window()) {
        p = print("its window was ");
        p = print_window(p, last, old_policy);
        p = ngx_slprintf(p, last, ", now ");
        return print_window(p, last, policy);
    }

    if ((policy.offsets == nullptr) != (old_policy.offsets == nullptr)) {
        return print(policy.offsets != nullptr ? "its calendar was utc, now local"
                                               : "its calendar was local, now utc");
    }

    if (policy.precision != old_policy.precision) {
        p = print("its precision was ");
        p = print_precision(p, last, old_policy);
        p = ngx_slprintf(p, last, ", now ");
        return print_precision(p, last, policy);
    }

    if (policy.burst != old_policy.burst) {
        return print("its burst was %uD, now %uD", old_policy.burst, policy.burst);
    }

    if (const char *part = differing_part(zone, old)) { return print(part); }

    if (zone.size != old.size) { return print("its size was %uz, now %uz", old.size, zone.size); }

    if (zone.override_file.max != old.override_file.max) {
        return print("its limits_max was %uz, now %uz", old.override_file.max,
                     zone.override_file.max);
    }

    return p;
}

void tell_changes(ngx_log_t &log, const ZoneConf &zone) {
    const auto *old = zone.former;
    if (zone.restarted.len != 0) {
        const bool loses = old != nullptr && !old->is_remote() && zone.override_file.path.len == 0
                           && old->memory.aside.overrides->count() != 0;
        ngx_log_error(NGX_LOG_NOTICE, &log, 0, "limit_sliding zone \"%V\" starts empty%s: %V",
                      &zone.name, loses ? ", without its limits of single keys" : "",
                      &zone.restarted);
    }

    if (old == nullptr || !zone.is_remote() || !old->is_remote()) { return; }

    u_char text[kTextMax];
    const auto *end = print_move(text, text + sizeof(text), zone.remote.redis->settings,
                                 old->remote.redis->settings);
    if (end != text) {
        ngx_log_error(NGX_LOG_NOTICE, &log, 0,
                      "limit_sliding zone \"%V\" leaves its counts and limits of single keys "
                      "behind in Redis: %*s",
                      &zone.name, end - text, text);
    }
}

} // namespace limit_sliding
