
/*
 * Copyright (C) the limit_sliding authors
 */


/* limit_sliding_redis, and zones that name one. */


#include "http/http.h"


static ngx_http_limit_sliding_redis_t *ngx_http_limit_sliding_get_redis(
    ngx_conf_t *cf, ngx_str_t *name);
static ngx_int_t ngx_http_limit_sliding_init_remote_zone(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone);


/* The block of this name, which may come before or after its first mention. */

static ngx_http_limit_sliding_redis_t *
ngx_http_limit_sliding_get_redis(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_uint_t                            i;
    ngx_http_limit_sliding_redis_t       *redis, **redises;
    ngx_http_limit_sliding_main_conf_t   *lsmcf;

    lsmcf = ngx_http_conf_get_module_main_conf(cf,
                                               ngx_http_limit_sliding_module);

    redises = lsmcf->redises.elts;

    for (i = 0; i < lsmcf->redises.nelts; i++) {
        if (redises[i]->name.len == name->len
            && ngx_strncmp(redises[i]->name.data, name->data, name->len) == 0)
        {
            return redises[i];
        }
    }

    redises = ngx_array_push(&lsmcf->redises);
    if (redises == NULL) {
        return NULL;
    }

    redis = ngx_pcalloc(cf->pool, sizeof(ngx_http_limit_sliding_redis_t));
    if (redis == NULL) {
        return NULL;
    }

    redis->name = *name;
    redis->file = cf->conf_file->file.name.data;
    redis->line = cf->conf_file->line;

    *redises = redis;

    return redis;
}


char *
ngx_http_limit_sliding_redis(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                       *value;
    ngx_http_limit_sliding_redis_t  *redis;

    value = cf->args->elts;

    if (value[1].len == 0) {
        return "has an empty name";
    }

    redis = ngx_http_limit_sliding_get_redis(cf, &value[1]);
    if (redis == NULL) {
        return NGX_CONF_ERROR;
    }

    if (redis->defined) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate limit_sliding_redis \"%V\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    return ngx_http_limit_sliding_redis_block(cf, redis);
}


/* "redis=name" */

char *
ngx_http_limit_sliding_zone_redis(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, ngx_http_limit_sliding_param_t *param)
{
    if (param->word.len == 0) {
        return NGX_CONF_OK;
    }

    if (!ngx_http_limit_sliding_has_redis) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" needs limit_sliding built with hiredis",
                           &param->word);
        return NGX_CONF_ERROR;
    }

    zone->redis = ngx_http_limit_sliding_get_redis(cf, &param->value);
    if (zone->redis == NULL) {
        return NGX_CONF_ERROR;
    }

    zone->redis->algorithms |= 1u << zone->policy.algorithm;

    return NGX_CONF_OK;
}


/* "lease=off|auto|n" */

char *
ngx_http_limit_sliding_zone_lease(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, ngx_http_limit_sliding_param_t *param)
{
    ngx_int_t  n;

    if (param->word.len == 0
        || ngx_strcmp(param->value.data, "off") == 0)
    {
        return NGX_CONF_OK;
    }

    if (zone->redis == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" needs the \"redis=\" parameter",
                           &param->word);
        return NGX_CONF_ERROR;
    }

    if (!limit_sliding_leases_are_of(&zone->policy)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" belongs to \"algorithm=counter\", "
                           "\"algorithm=fixed\" and "
                           "\"algorithm=token_bucket\" only", &param->word);
        return NGX_CONF_ERROR;
    }

    if (ngx_strcmp(param->value.data, "auto") == 0) {
        zone->remote.lease = LIMIT_SLIDING_LEASE_AUTO;
        return NGX_CONF_OK;
    }

    n = ngx_atoi(param->value.data, param->value.len);

    if (n < 1 || n > (ngx_int_t) LIMIT_SLIDING_LIMIT_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid lease \"%V\", it must be \"off\", "
                           "\"auto\" or a number between 1 and %uD",
                           &param->word, LIMIT_SLIDING_LIMIT_MAX);
        return NGX_CONF_ERROR;
    }

    zone->remote.lease = (uint32_t) n;

    return NGX_CONF_OK;
}


/* Everything is parsed. */

ngx_int_t
ngx_http_limit_sliding_init_redises(ngx_conf_t *cf,
    ngx_http_limit_sliding_main_conf_t *lsmcf)
{
    ngx_uint_t                        i;
    ngx_http_core_loc_conf_t         *clcf;
    ngx_http_limit_sliding_zone_t   **zones;
    ngx_http_limit_sliding_redis_t  **redises;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    redises = lsmcf->redises.elts;

    for (i = 0; i < lsmcf->redises.nelts; i++) {

        if (!redises[i]->defined) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "unknown limit_sliding_redis \"%V\" in %s:%ui",
                          &redises[i]->name, redises[i]->file,
                          redises[i]->line);
            return NGX_ERROR;
        }

        if (ngx_http_limit_sliding_redis_init(cf, redises[i], clcf->resolver)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    zones = lsmcf->zones.elts;

    for (i = 0; i < lsmcf->zones.nelts; i++) {
        if (zones[i]->redis
            && ngx_http_limit_sliding_init_remote_zone(cf, zones[i])
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_limit_sliding_init_remote_zone(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone)
{
    ngx_str_t                             *prefix;
    ngx_http_limit_sliding_remote_zone_t  *remote;

    remote = &zone->remote;

    remote->redis = zone->redis;
    remote->name = zone->name;

    prefix = &remote->prefix;

    prefix->len = zone->redis->key_prefix.len + zone->name.len + 2;

    prefix->data = ngx_pnalloc(cf->pool, prefix->len);
    if (prefix->data == NULL) {
        return NGX_ERROR;
    }

    ngx_sprintf(prefix->data, "%V%V:{", &zone->redis->key_prefix, &zone->name);

    return NGX_OK;
}


/* nginx's helper processes decide nothing, and so do not look at breakers. */

void
ngx_http_limit_sliding_enter_redises(
    ngx_http_limit_sliding_main_conf_t *lsmcf)
{
    ngx_uint_t                        i;
    ngx_http_limit_sliding_redis_t  **redises;

    if (ngx_process != NGX_PROCESS_WORKER
        && ngx_process != NGX_PROCESS_SINGLE)
    {
        return;
    }

    redises = lsmcf->redises.elts;

    for (i = 0; i < lsmcf->redises.nelts; i++) {
        ngx_http_limit_sliding_redis_enter(redises[i]);
    }
}


/* Connections are not left to be found open. */

void
ngx_http_limit_sliding_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                            i;
    ngx_http_limit_sliding_redis_t      **redises;
    ngx_http_limit_sliding_main_conf_t   *lsmcf;

    lsmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                                ngx_http_limit_sliding_module);
    if (lsmcf == NULL) {
        return;
    }

    redises = lsmcf->redises.elts;

    for (i = 0; i < lsmcf->redises.nelts; i++) {
        ngx_http_limit_sliding_redis_exit(redises[i]);
    }
}
