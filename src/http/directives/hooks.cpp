/* Copyright (C) the limit_sliding authors */

/* What src/shim calls while NGINX reads a configuration, and when a process begins or ends. */

#include <algorithm>

#include "http/api/api.hpp"
#include "http/api/timelines.hpp"
#include "http/conf/client_address.hpp"
#include "http/conf/configuration.hpp"
#include "http/conf/limit_set.hpp"
#include "http/directives/directives.hpp"
#include "http/module.h"
#include "http/overrides/api_writes.hpp"
#include "http/overrides/file_load.hpp"
#include "http/overrides/limits_file.hpp"
#include "http/response/log.hpp"
#include "http/response/variables.hpp"
#include "ngx/conf.hpp"
#include "ngx/memory.hpp"
#include "redis/bans/ban_call.hpp"

extern "C" ngx_module_t ngx_http_headers_filter_module;

namespace limit_sliding {
namespace {

/* Returns the configuration of a cycle, or an empty one if there is no http{}. */
const MainConf &main_conf_of(ngx_cycle_t *cycle) {
    static const MainConf none = {};
    auto *main = static_cast<MainConf *>(
        ngx_http_cycle_get_module_main_conf(cycle, ngx_http_limit_sliding_module));
    return main != nullptr ? *main : none;
}

/* Sets the limits in force.  `own`: the location has limits of its own.  A location of the API
 * does not inherit limits, so that the limits of a site neither reject operators nor count
 * scrapes.  Locations inside the API's location inherit conf->set as usual. */
void merge_groups(ngx_conf_t *cf, LocConf *prev, LocConf *conf, bool own) {
    auto **groups = conf->set != nullptr ? conf->set->groups[conf->dry_run] : nullptr;

    if (merge_api(cf, prev, conf) && !own) {
        /* "limit_except" and "if" in the location belong to it. */
        groups = core_loc_conf(cf).noname ? prev->groups : nullptr;
    }

    if (groups != nullptr) { std::copy(groups, groups + kStages, conf->groups); }
}

/* Returns true if the module is loaded. */
bool has_module(const ngx_conf_t *cf, std::string_view name) {
    for (auto *module = cf->cycle->modules; *module != nullptr; module++) {
        if ((*module)->name == name) { return true; }
    }

    return false;
}

bool has_lua(const ngx_conf_t *cf) { return has_module(cf, "ngx_http_lua_module"); }

bool has_scripts(const ngx_conf_t *cf) {
    return has_lua(cf) || has_module(cf, "ngx_http_js_module")
           || has_module(cf, "ngx_http_perl_module");
}

/* Returns true if the location has "add_header".  The entry of the directive has the offset at
 * which NGINX keeps its fields. */
bool adds_fields(ngx_conf_t *cf) {
    const auto *conf = static_cast<char *>(
        ngx_http_conf_get_module_loc_conf(cf, ngx_http_headers_filter_module));
    const auto *cmd = ngx_http_headers_filter_module.commands;
    while (cmd->name.len != 0 && view(cmd->name) != "add_header") {
        cmd++;
    }

    return cmd->name.len != 0 && *reinterpret_cast<void *const *>(conf + cmd->offset) != nullptr;
}

bool begin(ngx_cycle_t *cycle) {
    const auto &main = main_conf_of(cycle);
    for (auto *zone : main.zones) {
        take_statistics(*zone);
    }

    prepare_claims(main.sets);

    /* NGINX's helper processes decide nothing, and need no client of Redis. */
    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE) { return true; }

    for (auto *redis : main.redises) {
        if (kHasRedis && !redis_enter(redis)) { return false; }
    }

    if (!enter_holds(cycle->log, main.zones)) { return false; }

    for (auto *zone : main.zones) {
        if (kHasRedis && zone->is_remote() && zone->rejected.are_banned()) {
            enter_bans(zone->remote);
        }

        if (main.charges) { watch_overrides(*zone); }
    }

    if (ngx_worker == 0 && !main.zones.empty()) {
        start_sweep(main.zones);

        /* Only the API shows timelines. */
        if (main.api_clients.known) { start_timelines(main); }
    }

    return true;
}

} // namespace

const Zones *begin_process(ngx_cycle_t *cycle) {
    static const ngx_cycle_t *begun = nullptr;
    static bool is_ready;
    if (begun != cycle) {
        begun = cycle;
        is_ready = begin(cycle);
    }

    return is_ready ? &main_conf_of(cycle).zones : nullptr;
}

extern "C" {

ngx_int_t ngx_http_limit_sliding_add_variables(ngx_conf_t *cf) {
    return init_log(cf) == NGX_OK && add_variables(cf) ? NGX_OK : NGX_ERROR;
}

void *ngx_http_limit_sliding_create_main_conf(ngx_conf_t *cf) { return create<MainConf>(cf->pool); }

/* Runs once all directives are parsed, before locations inherit. */
char *ngx_http_limit_sliding_init_main_conf(ngx_conf_t *cf, void *conf) {
    auto &main = *static_cast<MainConf *>(conf);
    main.owes = main.charges || has_lua(cf);

    for (auto *zone : main.zones) {
        /* With sync=, units for which Redis has no room yet become a debt. */
        zone->may_owe = (main.owes && !zone->policy.is_in_flight())
                        || (zone->remote.sync_ms != 0 && zone->policy.is_bucket());
    }

    for (auto *set : main.sets) {
        for (const auto &limit : set->limits) {
            limit.zone->may_owe |= limit.settle != nullptr;
        }
    }

    const bool is_valid
        = init_zones(cf, main.zones)
          && std::all_of(main.zones.begin(), main.zones.end(),
                         [&](auto *zone) { return open_overrides(cf, main.zones, *zone); })
          && init_sets(cf, main.sets) && init_redises(cf, main.redises, main.zones);

    /* No warning follows an error: a misspelt zone would leave the right one unused. */
    if (is_valid) { warn_of_zones(cf, main); }

    return conf_result(is_valid);
}

void *ngx_http_limit_sliding_create_loc_conf(ngx_conf_t *cf) { return create<LocConf>(cf->pool); }

char *ngx_http_limit_sliding_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child) {
    auto *prev = static_cast<LocConf *>(parent);
    auto *conf = static_cast<LocConf *>(child);
    bool own = (conf->set != NGX_CONF_UNSET_PTR);

    ngx_conf_merge_ptr_value(conf->set, prev->set, nullptr);
    ngx_conf_merge_value(conf->dry_run, prev->dry_run, 0);

    merge_groups(cf, prev, conf, own);

    ngx_conf_merge_uint_value(conf->status_code, prev->status_code, NGX_HTTP_TOO_MANY_REQUESTS);
    ngx_conf_merge_uint_value(conf->log_level, prev->log_level, NGX_LOG_ERR);
    ngx_conf_merge_msec_value(conf->log_every, prev->log_every, 0);
    ngx_conf_merge_uint_value(conf->headers, prev->headers, kHeaderRetryAfter);
    ngx_conf_merge_uint_value(conf->client_ipv4, prev->client_ipv4, kIpv4Prefix);
    ngx_conf_merge_uint_value(conf->client_ipv6, prev->client_ipv6, kIpv6Prefix);
    ngx_conf_merge_ptr_value(conf->usage, prev->usage, nullptr);

    learn_prefixes(cf, *conf);
    warn_of_place(cf, *conf, prev->set != NGX_CONF_UNSET_PTR ? prev->set : nullptr);

    auto &main = main_conf(cf);
    if (conf->groups[kBeforeAuth] != nullptr) { main.needs |= NGX_HTTP_LIMIT_SLIDING_BEFORE_AUTH; }
    if (conf->groups[kAfterAuth] != nullptr) { main.needs |= NGX_HTTP_LIMIT_SLIDING_AFTER_AUTH; }

    const bool adds = (conf->headers & ~kHeaderRetryAfter) != 0;
    if (adds) { main.needs |= NGX_HTTP_LIMIT_SLIDING_HEADERS; }

    /* add_header, scripts and the upstream of an error_page may send fields of the same names.  A
     * script that sets Retry-After replaces ours, which the rejection has already set. */
    if (adds_fields(cf) || (adds && has_scripts(cf))
        || (conf->set != nullptr && core_loc_conf(cf).error_pages != nullptr)) {
        main.needs |= NGX_HTTP_LIMIT_SLIDING_ONE_OF_EACH;
    }

    return NGX_CONF_OK;
}

ngx_int_t ngx_http_limit_sliding_complete(ngx_conf_t *cf) {
    const auto &main = main_conf(cf);
    set_unused_prefixes(main);
    return !main.charges || prepare_writes(cf, main.zones) ? NGX_OK : NGX_ERROR;
}

/* Without a zone, nothing of ours is sent, but a log may have the usage of responses. */
ngx_uint_t ngx_http_limit_sliding_needs(ngx_conf_t *cf) {
    const auto &main = main_conf(cf);
    return main.zones.empty() ? main.needs & NGX_HTTP_LIMIT_SLIDING_USAGE : main.needs;
}

ngx_int_t ngx_http_limit_sliding_init_module(ngx_cycle_t *cycle) {
    const auto &main = main_conf_of(cycle);
    tell_gone_zones(*cycle, main.zones);
    for (auto *zone : main.zones) {
        enter_memory(cycle->log, *zone);
        enter_overrides(cycle->log, *zone);

        /* The API lists the overrides of a file with a name.  A file without a name stays while
         * there are overrides, or may be: no later cycle could open it again. */
        const bool is_needed = zone->override_file.path.len != 0
                                   ? main.api_clients.known
                                   : main.charges || zone->memory.aside.overrides->count() != 0;
        if (!is_needed) { close_overrides(*zone); }
    }

    return NGX_OK;
}

ngx_int_t ngx_http_limit_sliding_init_process(ngx_cycle_t *cycle) {
    return begin_process(cycle) != nullptr ? NGX_OK : NGX_ERROR;
}

/* Closes connections, so that NGINX does not report them as left open. */
void ngx_http_limit_sliding_exit_process(ngx_cycle_t *cycle) {
    for (auto *redis : main_conf_of(cycle).redises) {
        if constexpr (kHasRedis) { redis_exit(redis); }
    }
}

} // extern "C"
} // namespace limit_sliding
