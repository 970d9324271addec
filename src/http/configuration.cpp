/*
 * Copyright (C) the limit_sliding authors
 */

/* The module's configuration: made, inherited, put in force. */

#include "http/configuration.hpp"

#include "http/accounting.hpp"
#include "http/api/api.hpp"
#include "http/client_address.hpp"
#include "http/count_status.hpp"
#include "http/handler.hpp"
#include "http/headers.hpp"
#include "http/limit_set.hpp"
#include "http/log.hpp"
#include "http/module.hpp"
#include "http/redis_directive.hpp"
#include "http/variables.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static void merge_groups(ngx_conf_t *cf, LocConf *prev, LocConf *conf,
                         ngx_uint_t own);
static ngx_int_t add_handler(ngx_conf_t *cf, ngx_uint_t phase,
                             ngx_http_handler_pt handler);

extern "C" ngx_int_t ngx_http_limit_sliding_preconfigure(ngx_conf_t *cf)
{
    if (init_log(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return add_variables(cf);
}

extern "C" void *ngx_http_limit_sliding_create_main_conf(ngx_conf_t *cf)
{
    MainConf *lsmcf;

    lsmcf = ngx_pcalloc(cf->pool, sizeof(MainConf));
    if (lsmcf == NULL) {
        return NULL;
    }

    if (ngx_array_init(&lsmcf->zones, cf->pool, 4, sizeof(ZoneConf *)) != NGX_OK
        || ngx_array_init(&lsmcf->sets, cf->pool, 4, sizeof(LimitSet *))
               != NGX_OK
        || ngx_array_init(&lsmcf->redises, cf->pool, 1, sizeof(Redis *))
               != NGX_OK) {
        return NULL;
    }

    return lsmcf;
}

/* Runs once everything is parsed, before anything is inherited. */

extern "C" char *ngx_http_limit_sliding_init_main_conf(ngx_conf_t *cf,
                                                       void *conf)
{
    MainConf *lsmcf = conf;

    if (init_zones(cf, lsmcf) != NGX_OK || init_redises(cf, lsmcf) != NGX_OK
        || init_sets(cf, lsmcf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}

extern "C" void *ngx_http_limit_sliding_create_conf(ngx_conf_t *cf)
{
    LocConf *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(LocConf));
    if (conf == NULL) {
        return NULL;
    }

    conf->set = NGX_CONF_UNSET_PTR;
    conf->status_code = NGX_CONF_UNSET_UINT;
    conf->log_level = NGX_CONF_UNSET_UINT;
    conf->log_every = NGX_CONF_UNSET_MSEC;
    conf->dry_run = NGX_CONF_UNSET;
    conf->headers = NGX_CONF_UNSET_UINT;
    conf->client_ipv4 = NGX_CONF_UNSET_UINT;
    conf->client_ipv6 = NGX_CONF_UNSET_UINT;
    conf->api_write = NGX_CONF_UNSET;

    return conf;
}

extern "C" char *ngx_http_limit_sliding_merge_conf(ngx_conf_t *cf, void *parent,
                                                   void *child)
{
    LocConf *prev = parent;
    LocConf *conf = child;

    ngx_uint_t own;
    ngx_http_core_loc_conf_t *clcf;
    MainConf *lsmcf;

    own = (conf->set != NGX_CONF_UNSET_PTR);

    ngx_conf_merge_ptr_value(conf->set, prev->set, NULL);
    ngx_conf_merge_value(conf->dry_run, prev->dry_run, 0);

    merge_groups(cf, prev, conf, own);

    ngx_conf_merge_uint_value(conf->status_code, prev->status_code,
                              NGX_HTTP_TOO_MANY_REQUESTS);

    ngx_conf_merge_uint_value(conf->log_level, prev->log_level, NGX_LOG_ERR);
    ngx_conf_merge_msec_value(conf->log_every, prev->log_every, 0);

    ngx_conf_merge_uint_value(conf->headers, prev->headers, kHeaderRetryAfter);

    ngx_conf_merge_uint_value(conf->client_ipv4, prev->client_ipv4,
                              kIpv4Prefix);
    ngx_conf_merge_uint_value(conf->client_ipv6, prev->client_ipv6,
                              kIpv6Prefix);

    learn_prefixes(cf, conf);

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if ((conf->headers & ~kHeaderRetryAfter)
        || (conf->set && clcf->error_pages)) {
        lsmcf = ngx_http_conf_get_module_main_conf(
            cf, ngx_http_limit_sliding_module);
        lsmcf->header_filter = 1;
    }

    return NGX_CONF_OK;
}

/*
 * Sets which limits are in force; `own` tells that they are not inherited.  A
 * location of the API has its own limits only, so that nobody is locked out of
 * it by limits that are meant for a site, and scrapes take nothing from them.
 * It hands on conf->set all the same: locations in it inherit as elsewhere.
 */

static void merge_groups(ngx_conf_t *cf, LocConf *prev, LocConf *conf,
                         ngx_uint_t own)
{
    ngx_uint_t i;
    ngx_http_core_loc_conf_t *clcf;
    Group **groups;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    groups = conf->set ? conf->set->groups[conf->dry_run] : NULL;

    if (merge_api(cf, prev, conf) && !own) {
        /* "limit_except" and "if" in the location are parts of it */
        groups = clcf->noname ? prev->groups : NULL;
    }

    if (groups == NULL) {
        return;
    }

    for (i = 0; i < kStages; i++) {
        conf->groups[i] = groups[i];
    }
}

extern "C" ngx_int_t ngx_http_limit_sliding_init(ngx_conf_t *cf)
{
    MainConf *lsmcf;

    lsmcf
        = ngx_http_conf_get_module_main_conf(cf, ngx_http_limit_sliding_module);

    /*
     * Handlers of a phase run in the reverse order of registration, and
     * nginx's own authentication modules have registered before: limits run
     * ahead of them.
     */

    if (add_handler(cf, NGX_HTTP_ACCESS_PHASE, access_handler) != NGX_OK) {
        return NGX_ERROR;
    }

    /* the rest costs nothing unless it is used */

    if (lsmcf->after_auth
        && add_handler(cf, NGX_HTTP_PRECONTENT_PHASE, after_auth_handler)
               != NGX_OK) {
        return NGX_ERROR;
    }

    if (lsmcf->count_status
        && add_handler(cf, NGX_HTTP_LOG_PHASE, count_handler) != NGX_OK) {
        return NGX_ERROR;
    }

    if (lsmcf->header_filter) {
        init_headers();
    }

    return NGX_OK;
}

static ngx_int_t add_handler(ngx_conf_t *cf, ngx_uint_t phase,
                             ngx_http_handler_pt handler)
{
    ngx_http_handler_pt *h;
    ngx_http_core_main_conf_t *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[phase].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = handler;

    return NGX_OK;
}

extern "C" ngx_int_t ngx_http_limit_sliding_init_process(ngx_cycle_t *cycle)
{
    MainConf *lsmcf;

    lsmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                                ngx_http_limit_sliding_module);

    if (lsmcf) {
        init_counters(lsmcf);
        enter_redises(lsmcf);
    }

    return NGX_OK;
}

extern "C" char *ngx_http_limit_sliding_dry_run(ngx_conf_t *cf,
                                                ngx_command_t *cmd, void *conf)
{
    ngx_command_t slot = *cmd;

    slot.offset = offsetof(LocConf, dry_run);

    return ngx_conf_set_flag_slot(cf, &slot, conf);
}

} // namespace limit_sliding
