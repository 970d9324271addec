/* Copyright (C) the limit_sliding authors */

/* The module for NGINX: its directives, and the hooks that NGINX calls while it reads a
 * configuration, and when a process begins or ends. */

#include <algorithm>

#include "http/api/api.hpp"
#include "http/api/timelines.hpp"
#include "http/conf/client_address.hpp"
#include "http/conf/configuration.hpp"
#include "http/conf/limit_set.hpp"
#include "http/directives/directives.hpp"
#include "http/overrides/override_file.hpp"
#include "http/overrides/override_load.hpp"
#include "http/overrides/override_writes.hpp"
#include "http/request/handler.hpp"
#include "http/response/headers.hpp"
#include "http/response/log.hpp"
#include "http/response/variables.hpp"
#include "ngx/binary.hpp"
#include "ngx/conf.hpp"
#include "ngx/memory.hpp"
#include "redis/background/ban_spread.hpp"

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

/* Reserves a place in a phase, where set_checkers() installs check_stage().  NGINX never calls
 * this handler.  The error would fail the request instead of passing it without a limit. */
template <Stage kStage>
ngx_int_t stage_handler(ngx_http_request_t *) {
    return NGX_ERROR;
}

bool add_handler(ngx_conf_t *cf, ngx_uint_t phase, ngx_http_handler_pt handler) {
    auto *core = static_cast<ngx_http_core_main_conf_t *>(
        ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module));

    auto *added = static_cast<ngx_http_handler_pt *>(ngx_array_push(&core->phases[phase].handlers));
    return added != nullptr && (*added = handler);
}

/* Installs check_stage() in the reserved places, once the configuration is complete. */
void set_checkers(ngx_cycle_t *cycle) {
    auto *core = static_cast<ngx_http_core_main_conf_t *>(
        ngx_http_cycle_get_module_main_conf(cycle, ngx_http_core_module));
    if (core == nullptr) { return; }

    for (auto *ph = core->phase_engine.handlers; ph->checker != nullptr; ph++) {
        if (ph->handler == stage_handler<kBeforeAuth>) { ph->checker = check_stage<kBeforeAuth>; }

        if (ph->handler == stage_handler<kAfterAuth>) { ph->checker = check_stage<kAfterAuth>; }
    }
}

/* Returns false, and logs an error, if OpenResty's patches give NGINX's structures another layout
 * than the module was built for. */
bool fits_binary(ngx_conf_t *cf) {
    if (kBuiltForOpenResty == is_openresty()) { return true; }

    return conf_invalid(cf,
                        "limit_sliding was built %s OpenResty's patches, which this binary %s:"
                        " build it from the source of this binary",
                        kBuiltForOpenResty ? "with" : "without",
                        kBuiltForOpenResty ? "lacks" : "has");
}

ngx_int_t preconfigure(ngx_conf_t *cf) {
    if (!fits_binary(cf)) { return NGX_ERROR; }

    return init_log(cf) == NGX_OK && add_variables(cf) ? NGX_OK : NGX_ERROR;
}

void *create_main_conf(ngx_conf_t *cf) { return create<MainConf>(cf->pool); }

/* Returns true if ngx_lua is loaded. */
bool has_lua(const ngx_conf_t *cf) {
    for (auto *module = cf->cycle->modules; *module != nullptr; module++) {
        if (std::string_view((*module)->name) == "ngx_http_lua_module") { return true; }
    }

    return false;
}

/* Runs once all directives are parsed, before locations inherit. */
char *init_main_conf(ngx_conf_t *cf, void *conf) {
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

    /* An error comes alone: a misspelt zone leaves the right one unused. */
    if (is_valid) { warn_of_zones(cf, main); }

    return conf_result(is_valid);
}

void *create_conf(ngx_conf_t *cf) { return create<LocConf>(cf->pool); }

char *merge_conf(ngx_conf_t *cf, void *parent, void *child) {
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

    learn_prefixes(cf, *conf);
    warn_of_place(cf, *conf, prev->set != NGX_CONF_UNSET_PTR ? prev->set : nullptr);

    auto &main = main_conf(cf);
    for (Stage stage : {kBeforeAuth, kAfterAuth}) {
        main.stages[stage] |= (conf->groups[stage] != nullptr);
    }

    if ((conf->headers & ~kHeaderRetryAfter) != 0
        || (conf->set != nullptr && core_loc_conf(cf).error_pages != nullptr)) {
        main.header_filter = true;
    }

    return NGX_CONF_OK;
}

ngx_int_t init(ngx_conf_t *cf) {
    const auto &main = main_conf(cf);
    set_unused_prefixes(main);

    /* Handlers of a phase run in reverse order of registration.  NGINX's authentication modules
     * are registered before, so limits run first.  A phase that no location needs gets no handler,
     * which would cost each request time. */
    bool added = (!main.stages[kBeforeAuth]
                  || add_handler(cf, NGX_HTTP_ACCESS_PHASE, stage_handler<kBeforeAuth>))
                 && (!main.stages[kAfterAuth]
                     || add_handler(cf, NGX_HTTP_PRECONTENT_PHASE, stage_handler<kAfterAuth>))
                 && (!main.settles || add_handler(cf, NGX_HTTP_LOG_PHASE, settle_handler));

    if (main.charges && !prepare_writes(cf, main.zones)) { return NGX_ERROR; }

    if (added && main.header_filter) { init_headers(); }

    return added ? NGX_OK : NGX_ERROR;
}

ngx_int_t init_module(ngx_cycle_t *cycle) {
    const auto &main = main_conf_of(cycle);
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

    set_checkers(cycle);

    return NGX_OK;
}

bool begin(ngx_cycle_t *cycle) {
    for (auto *zone : main_conf_of(cycle).zones) {
        take_statistics(*zone);
    }

    prepare_claims(main_conf_of(cycle).sets);

    /* NGINX's helper processes decide nothing, and need no client of Redis. */
    if (ngx_process == NGX_PROCESS_WORKER || ngx_process == NGX_PROCESS_SINGLE) {
        for (auto *redis : main_conf_of(cycle).redises) {
            if (kHasRedis && !redis_enter(redis)) { return false; }
        }

        if (!enter_holds(cycle->log, main_conf_of(cycle).zones)) { return false; }

        for (auto *zone : main_conf_of(cycle).zones) {
            if (kHasRedis && zone->is_remote() && zone->rejected.are_banned()) {
                enter_bans(zone->remote);
            }

            if (main_conf_of(cycle).charges) { watch_overrides(*zone); }
        }

        if (ngx_worker == 0 && !main_conf_of(cycle).zones.empty()) {
            start_sweep(main_conf_of(cycle).zones);

            /* Only the API shows timelines. */
            if (main_conf_of(cycle).api_clients.known) { start_timelines(main_conf_of(cycle)); }
        }
    }

    return true;
}

ngx_int_t init_process(ngx_cycle_t *cycle) {
    return begin_process(cycle) != nullptr ? NGX_OK : NGX_ERROR;
}

/* Closes connections, so that NGINX does not report them as left open. */
void exit_process(ngx_cycle_t *cycle) {
    for (auto *redis : main_conf_of(cycle).redises) {
        if constexpr (kHasRedis) { redis_exit(redis); }
    }
}

constexpr ngx_uint_t kPlaces = NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF;

ngx_command_t commands[] = {
    {ngx_string("limit_sliding_zone"), NGX_HTTP_MAIN_CONF | NGX_CONF_2MORE, zone_directive, 0, 0,
     nullptr},
    {ngx_string("limit_sliding_redis"), NGX_HTTP_MAIN_CONF | NGX_CONF_BLOCK | NGX_CONF_TAKE1,
     redis_directive, 0, 0, nullptr},
    {ngx_string("limit_sliding"), kPlaces | NGX_CONF_1MORE, limit_directive,
     NGX_HTTP_LOC_CONF_OFFSET, 0, nullptr},
    {ngx_string("limit_sliding_status"), kPlaces | NGX_CONF_TAKE1, status_directive,
     NGX_HTTP_LOC_CONF_OFFSET, 0, nullptr},
    {ngx_string("limit_sliding_log_level"), kPlaces | NGX_CONF_1MORE, log_level_directive,
     NGX_HTTP_LOC_CONF_OFFSET, 0, nullptr},
    {ngx_string("limit_sliding_dry_run"), kPlaces | NGX_CONF_FLAG, ngx_conf_set_flag_slot,
     NGX_HTTP_LOC_CONF_OFFSET, offsetof(LocConf, dry_run), nullptr},
    {ngx_string("limit_sliding_api"), NGX_HTTP_LOC_CONF | NGX_CONF_ANY, api_directive,
     NGX_HTTP_LOC_CONF_OFFSET, 0, nullptr},
    {ngx_string("limit_sliding_headers"), kPlaces | NGX_CONF_1MORE, headers_directive,
     NGX_HTTP_LOC_CONF_OFFSET, 0, nullptr},
    {ngx_string("limit_sliding_client"), kPlaces | NGX_CONF_1MORE, client_directive,
     NGX_HTTP_LOC_CONF_OFFSET, 0, nullptr},
    ngx_null_command,
};

ngx_http_module_t hooks = {
    preconfigure,     /* preconfiguration */
    init,             /* postconfiguration */
    create_main_conf, /* create main configuration */
    init_main_conf,   /* init main configuration */
    nullptr,          /* create server configuration */
    nullptr,          /* merge server configuration */
    create_conf,      /* create location configuration */
    merge_conf,       /* merge location configuration */
};

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

} // namespace limit_sliding

ngx_module_t ngx_http_limit_sliding_module = {
    NGX_MODULE_V1,
    &limit_sliding::hooks,
    limit_sliding::commands,
    NGX_HTTP_MODULE,
    nullptr, /* init master */
    limit_sliding::init_module,
    limit_sliding::init_process,
    nullptr, /* init thread */
    nullptr, /* exit thread */
    limit_sliding::exit_process,
    nullptr, /* exit master */
    NGX_MODULE_V1_PADDING,
};
