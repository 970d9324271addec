/* Copyright (C) the limit_sliding authors */

/* The module: its directives, and the hooks that NGINX calls for configurations, and when processes
 * begin and end. */

#include <algorithm>

#include "http/api/api.hpp"
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

/* Sets the limits in force.  `own`: the location has set limits itself.  A location of the API
 * does not inherit limits, so that limits of a site neither reject operators nor count scrapes.
 * Locations inside it inherit conf->set as usual. */
void merge_groups(ngx_conf_t *cf, LocConf *prev, LocConf *conf, bool own) {
    auto **groups = conf->set != nullptr ? conf->set->groups[conf->dry_run] : nullptr;

    if (merge_api(cf, prev, conf) && !own) {
        /* "limit_except" and "if" in the location belong to it. */
        groups = core_loc_conf(cf).noname ? prev->groups : nullptr;
    }

    if (groups != nullptr) { std::copy(groups, groups + kStages, conf->groups); }
}

/* Reserves a place in a phase, where set_checkers() installs check_stage().  NGINX never calls
 * this handler; if it did, the request would fail, and not pass unlimited. */
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

ngx_int_t preconfigure(ngx_conf_t *cf) {
    return init_log(cf) == NGX_OK && add_variables(cf) ? NGX_OK : NGX_ERROR;
}

void *create_main_conf(ngx_conf_t *cf) { return create<MainConf>(cf->pool); }

/* Runs once all directives are parsed, before locations inherit. */
char *init_main_conf(ngx_conf_t *cf, void *conf) {
    auto &main = *static_cast<MainConf *>(conf);
    warn_of_zones(cf, main);

    for (auto *zone : main.zones) {
        /* With sync=, units for which Redis has no room yet become a debt. */
        zone->may_owe = main.charges || (zone->remote.sync_ms != 0 && zone->policy.is_bucket());
    }

    for (auto *set : main.sets) {
        for (const auto &limit : set->limits) {
            limit.zone->may_owe |= limit.settle != nullptr;
        }
    }

    return conf_result(
        init_zones(cf, main.zones)
        && std::all_of(main.zones.begin(), main.zones.end(),
                       [&](auto *zone) { return open_limits(cf, main.zones, *zone); })
        && init_sets(cf, main.sets) && init_redises(cf, main.redises, main.zones));
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
     * are registered before, so limits run first.  Handlers without a location are left out. */
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
    for (auto *zone : main_conf_of(cycle).zones) {
        enter_memory(cycle->log, *zone);
        enter_limits(cycle->log, *zone);

        /* Without a location of the API, the file is not needed any more. */
        if (!main_conf_of(cycle).api_clients.known) { close_limits(*zone); }
    }

    set_checkers(cycle);

    return NGX_OK;
}

ngx_int_t init_process(ngx_cycle_t *cycle) {
    for (auto *zone : main_conf_of(cycle).zones) {
        take_statistics(*zone);
    }

    prepare_claims(main_conf_of(cycle).sets);

    /* NGINX's helper processes decide nothing, and need no circuit breakers. */
    if (ngx_process == NGX_PROCESS_WORKER || ngx_process == NGX_PROCESS_SINGLE) {
        for (auto *redis : main_conf_of(cycle).redises) {
            if constexpr (kHasRedis) { redis_enter(redis); }
        }

        for (auto *zone : main_conf_of(cycle).zones) {
            if (kHasRedis && zone->is_remote() && zone->rejected.are_banned()) {
                enter_bans(zone->remote);
            }

            if (main_conf_of(cycle).charges) { watch_limits(*zone); }
        }

        if (ngx_worker == 0 && !main_conf_of(cycle).zones.empty()) {
            start_sweep(main_conf_of(cycle).zones);
        }
    }

    return NGX_OK;
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
