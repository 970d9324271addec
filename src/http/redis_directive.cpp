
/*
 * Copyright (C) the limit_sliding authors
 */

/* limit_sliding_redis, and zones that name one. */

#include "http/redis_directive.hpp"

#include "http/configuration.hpp"
#include "http/module.hpp"
#include "http/parameter.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static Redis *get_redis(ngx_conf_t *cf, ngx_str_t *name);
static ngx_int_t init_remote_zone(ngx_conf_t *cf, ZoneConf *zone);

/* The block of this name, which may come before or after its first mention. */

static Redis *get_redis(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_uint_t i;
    Redis *redis, **redises;
    MainConf *lsmcf;

    lsmcf
        = ngx_http_conf_get_module_main_conf(cf, ngx_http_limit_sliding_module);

    redises = lsmcf->redises.elts;

    for (i = 0; i < lsmcf->redises.nelts; i++) {
        if (redises[i]->settings.name.len == name->len
            && ngx_strncmp(redises[i]->settings.name.data, name->data,
                           name->len)
                   == 0) {
            return redises[i];
        }
    }

    redises = ngx_array_push(&lsmcf->redises);
    if (redises == NULL) {
        return NULL;
    }

    redis = ngx_pcalloc(cf->pool, sizeof(Redis));
    if (redis == NULL) {
        return NULL;
    }

    redis->settings.name = *name;
    redis->settings.file = cf->conf_file->file.name.data;
    redis->settings.line = cf->conf_file->line;

    *redises = redis;

    return redis;
}

extern "C" char *ngx_http_limit_sliding_redis(ngx_conf_t *cf,
                                              ngx_command_t *cmd, void *conf)
{
    ngx_str_t *value;
    Redis *redis;

    value = cf->args->elts;

    if (value[1].len == 0) {
        return "has an empty name";
    }

    redis = get_redis(cf, &value[1]);
    if (redis == NULL) {
        return NGX_CONF_ERROR;
    }

    if (redis->settings.defined) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate limit_sliding_redis \"%V\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    return redis_block(cf, &redis->settings);
}

/* "redis=name" */

char *zone_redis(ngx_conf_t *cf, ZoneConf *zone, Param *param)
{
    if (param->word.len == 0) {
        return NGX_CONF_OK;
    }

    if (!has_redis) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" needs limit_sliding built with hiredis",
                           &param->word);
        return NGX_CONF_ERROR;
    }

    zone->redis = get_redis(cf, &param->value);
    if (zone->redis == NULL) {
        return NGX_CONF_ERROR;
    }

    zone->redis->algorithms |= 1u << index_of(zone->policy.algorithm);

    return NGX_CONF_OK;
}

/* "lease=off|auto|n" */

char *zone_lease(ngx_conf_t *cf, ZoneConf *zone, Param *param)
{
    ngx_int_t n;

    if (param->word.len == 0 || ngx_strcmp(param->value.data, "off") == 0) {
        return NGX_CONF_OK;
    }

    if (zone->redis == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" needs the \"redis=\" parameter",
                           &param->word);
        return NGX_CONF_ERROR;
    }

    if (!limit_sliding::leases_are_of(&zone->policy)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" belongs to \"algorithm=counter\", "
                           "\"algorithm=fixed\" and "
                           "\"algorithm=token_bucket\" only",
                           &param->word);
        return NGX_CONF_ERROR;
    }

    if (ngx_strcmp(param->value.data, "auto") == 0) {
        zone->remote.lease = kLeaseAuto;
        return NGX_CONF_OK;
    }

    n = ngx_atoi(param->value.data, param->value.len);

    if (n < 1 || n > (ngx_int_t)kLimitMax) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid lease \"%V\", it must be \"off\", "
                           "\"auto\" or a number between 1 and %uD",
                           &param->word, kLimitMax);
        return NGX_CONF_ERROR;
    }

    zone->remote.lease = (uint32_t)n;

    return NGX_CONF_OK;
}

/* Everything is parsed. */

ngx_int_t init_redises(ngx_conf_t *cf, MainConf *lsmcf)
{
    ngx_uint_t i;
    ngx_http_core_loc_conf_t *clcf;
    ZoneConf **zones;
    Redis **redises;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    redises = lsmcf->redises.elts;

    for (i = 0; i < lsmcf->redises.nelts; i++) {

        if (!redises[i]->settings.defined) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "unknown limit_sliding_redis \"%V\" in %s:%ui",
                          &redises[i]->settings.name, redises[i]->settings.file,
                          redises[i]->settings.line);
            return NGX_ERROR;
        }

        if (redis_init(cf, redises[i], clcf->resolver) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    zones = lsmcf->zones.elts;

    for (i = 0; i < lsmcf->zones.nelts; i++) {
        if (zones[i]->redis && init_remote_zone(cf, zones[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}

static ngx_int_t init_remote_zone(ngx_conf_t *cf, ZoneConf *zone)
{
    ngx_str_t *prefix;
    RemoteZone *remote;

    remote = &zone->remote;

    remote->redis = zone->redis;
    remote->name = zone->name;

    prefix = &remote->prefix;

    prefix->len = zone->redis->settings.key_prefix.len + zone->name.len + 2;

    prefix->data = ngx_pnalloc(cf->pool, prefix->len);
    if (prefix->data == NULL) {
        return NGX_ERROR;
    }

    ngx_sprintf(prefix->data, "%V%V:{", &zone->redis->settings.key_prefix,
                &zone->name);

    return NGX_OK;
}

/* nginx's helper processes decide nothing, and so do not look at breakers. */

void enter_redises(MainConf *lsmcf)
{
    ngx_uint_t i;
    Redis **redises;

    if (ngx_process != NGX_PROCESS_WORKER
        && ngx_process != NGX_PROCESS_SINGLE) {
        return;
    }

    redises = lsmcf->redises.elts;

    for (i = 0; i < lsmcf->redises.nelts; i++) {
        redis_enter(redises[i]);
    }
}

/* Connections are not left to be found open. */

extern "C" void ngx_http_limit_sliding_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t i;
    Redis **redises;
    MainConf *lsmcf;

    lsmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                                ngx_http_limit_sliding_module);
    if (lsmcf == NULL) {
        return;
    }

    redises = lsmcf->redises.elts;

    for (i = 0; i < lsmcf->redises.nelts; i++) {
        redis_exit(redises[i]);
    }
}

} // namespace limit_sliding
