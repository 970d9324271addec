
/*
 * Copyright (C) the limit_sliding authors
 */


#include "http/http.h"


static ngx_int_t ngx_http_limit_sliding_preconfigure(ngx_conf_t *cf);
static void *ngx_http_limit_sliding_create_main_conf(ngx_conf_t *cf);
static void *ngx_http_limit_sliding_create_conf(ngx_conf_t *cf);
static char *ngx_http_limit_sliding_init_main_conf(ngx_conf_t *cf,
    void *conf);
static char *ngx_http_limit_sliding_merge_conf(ngx_conf_t *cf, void *parent,
    void *child);
static void ngx_http_limit_sliding_merge_groups(ngx_conf_t *cf,
    ngx_http_limit_sliding_conf_t *prev, ngx_http_limit_sliding_conf_t *conf,
    ngx_uint_t own);
static ngx_int_t ngx_http_limit_sliding_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_limit_sliding_add_handler(ngx_conf_t *cf,
    ngx_uint_t phase, ngx_http_handler_pt handler);
static ngx_int_t ngx_http_limit_sliding_init_process(ngx_cycle_t *cycle);


static ngx_command_t  ngx_http_limit_sliding_commands[] = {

    { ngx_string("limit_sliding_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_limit_sliding_zone,
      0,
      0,
      NULL },

    { ngx_string("limit_sliding_redis"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_BLOCK|NGX_CONF_TAKE1,
      ngx_http_limit_sliding_redis,
      0,
      0,
      NULL },

    { ngx_string("limit_sliding"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_limit_sliding,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("limit_sliding_status"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_limit_sliding_status,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("limit_sliding_log_level"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE12,
      ngx_http_limit_sliding_log_level,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("limit_sliding_dry_run"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_limit_sliding_conf_t, dry_run),
      NULL },

    { ngx_string("limit_sliding_api"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS|NGX_CONF_TAKE1,
      ngx_http_limit_sliding_api,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("limit_sliding_headers"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_limit_sliding_headers,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("limit_sliding_client"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE12,
      ngx_http_limit_sliding_client,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_limit_sliding_module_ctx = {
    ngx_http_limit_sliding_preconfigure,       /* preconfiguration */
    ngx_http_limit_sliding_init,               /* postconfiguration */

    ngx_http_limit_sliding_create_main_conf,   /* create main configuration */
    ngx_http_limit_sliding_init_main_conf,     /* init main configuration */

    NULL,                                      /* create server configuration */
    NULL,                                      /* merge server configuration */

    ngx_http_limit_sliding_create_conf,        /* create location conf */
    ngx_http_limit_sliding_merge_conf          /* merge location conf */
};


ngx_module_t  ngx_http_limit_sliding_module = {
    NGX_MODULE_V1,
    &ngx_http_limit_sliding_module_ctx,        /* module context */
    ngx_http_limit_sliding_commands,           /* module directives */
    NGX_HTTP_MODULE,                           /* module type */
    NULL,                                      /* init master */
    ngx_http_limit_sliding_init_module,        /* init module */
    ngx_http_limit_sliding_init_process,       /* init process */
    NULL,                                      /* init thread */
    NULL,                                      /* exit thread */
    ngx_http_limit_sliding_exit_process,       /* exit process */
    NULL,                                      /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_limit_sliding_preconfigure(ngx_conf_t *cf)
{
    if (ngx_http_limit_sliding_init_log(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_limit_sliding_add_variables(cf);
}


static void *
ngx_http_limit_sliding_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_limit_sliding_main_conf_t  *lsmcf;

    lsmcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_limit_sliding_main_conf_t));
    if (lsmcf == NULL) {
        return NULL;
    }

    if (ngx_array_init(&lsmcf->zones, cf->pool, 4,
                       sizeof(ngx_http_limit_sliding_zone_t *))
        != NGX_OK
        || ngx_array_init(&lsmcf->sets, cf->pool, 4,
                          sizeof(ngx_http_limit_sliding_set_t *))
           != NGX_OK
        || ngx_array_init(&lsmcf->redises, cf->pool, 1,
                          sizeof(ngx_http_limit_sliding_redis_t *))
           != NGX_OK)
    {
        return NULL;
    }

    return lsmcf;
}


/* Runs once everything is parsed, before anything is inherited. */

static char *
ngx_http_limit_sliding_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_limit_sliding_main_conf_t  *lsmcf = conf;

    if (ngx_http_limit_sliding_init_zones(cf, lsmcf) != NGX_OK
        || ngx_http_limit_sliding_init_redises(cf, lsmcf) != NGX_OK
        || ngx_http_limit_sliding_init_sets(cf, lsmcf) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static void *
ngx_http_limit_sliding_create_conf(ngx_conf_t *cf)
{
    ngx_http_limit_sliding_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_limit_sliding_conf_t));
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


static char *
ngx_http_limit_sliding_merge_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_limit_sliding_conf_t  *prev = parent;
    ngx_http_limit_sliding_conf_t  *conf = child;

    ngx_uint_t                            own;
    ngx_http_core_loc_conf_t             *clcf;
    ngx_http_limit_sliding_main_conf_t   *lsmcf;

    own = (conf->set != NGX_CONF_UNSET_PTR);

    ngx_conf_merge_ptr_value(conf->set, prev->set, NULL);
    ngx_conf_merge_value(conf->dry_run, prev->dry_run, 0);

    ngx_http_limit_sliding_merge_groups(cf, prev, conf, own);

    ngx_conf_merge_uint_value(conf->status_code, prev->status_code,
                              NGX_HTTP_TOO_MANY_REQUESTS);

    ngx_conf_merge_uint_value(conf->log_level, prev->log_level, NGX_LOG_ERR);
    ngx_conf_merge_msec_value(conf->log_every, prev->log_every, 0);

    ngx_conf_merge_uint_value(conf->headers, prev->headers,
                              NGX_HTTP_LIMIT_SLIDING_RETRY_AFTER);

    ngx_conf_merge_uint_value(conf->client_ipv4, prev->client_ipv4,
                              NGX_HTTP_LIMIT_SLIDING_IPV4);
    ngx_conf_merge_uint_value(conf->client_ipv6, prev->client_ipv6,
                              NGX_HTTP_LIMIT_SLIDING_IPV6);

    ngx_http_limit_sliding_learn_prefixes(cf, conf);

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if ((conf->headers & ~NGX_HTTP_LIMIT_SLIDING_RETRY_AFTER)
        || (conf->set && clcf->error_pages))
    {
        lsmcf = ngx_http_conf_get_module_main_conf(cf,
                                                ngx_http_limit_sliding_module);
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

static void
ngx_http_limit_sliding_merge_groups(ngx_conf_t *cf,
    ngx_http_limit_sliding_conf_t *prev, ngx_http_limit_sliding_conf_t *conf,
    ngx_uint_t own)
{
    ngx_uint_t                        i;
    ngx_http_core_loc_conf_t         *clcf;
    ngx_http_limit_sliding_group_t  **groups;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    groups = conf->set ? conf->set->groups[conf->dry_run] : NULL;

    if (ngx_http_limit_sliding_merge_api(cf, prev, conf) && !own) {
        /* "limit_except" and "if" in the location are parts of it */
        groups = clcf->noname ? prev->groups : NULL;
    }

    if (groups == NULL) {
        return;
    }

    for (i = 0; i < NGX_HTTP_LIMIT_SLIDING_NSTAGES; i++) {
        conf->groups[i] = groups[i];
    }
}


static ngx_int_t
ngx_http_limit_sliding_init(ngx_conf_t *cf)
{
    ngx_http_limit_sliding_main_conf_t  *lsmcf;

    lsmcf = ngx_http_conf_get_module_main_conf(cf,
                                               ngx_http_limit_sliding_module);

    /*
     * Handlers of a phase run in the reverse order of registration, and
     * nginx's own authentication modules have registered before: limits run
     * ahead of them.
     */

    if (ngx_http_limit_sliding_add_handler(cf, NGX_HTTP_ACCESS_PHASE,
                                           ngx_http_limit_sliding_handler)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* the rest costs nothing unless it is used */

    if (lsmcf->after_auth
        && ngx_http_limit_sliding_add_handler(cf, NGX_HTTP_PRECONTENT_PHASE,
                                     ngx_http_limit_sliding_after_auth_handler)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (lsmcf->count_status
        && ngx_http_limit_sliding_add_handler(cf, NGX_HTTP_LOG_PHASE,
                                          ngx_http_limit_sliding_count_handler)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (lsmcf->header_filter) {
        ngx_http_limit_sliding_init_headers();
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_limit_sliding_add_handler(ngx_conf_t *cf, ngx_uint_t phase,
    ngx_http_handler_pt handler)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[phase].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = handler;

    return NGX_OK;
}


static ngx_int_t
ngx_http_limit_sliding_init_process(ngx_cycle_t *cycle)
{
    ngx_http_limit_sliding_main_conf_t  *lsmcf;

    lsmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                                ngx_http_limit_sliding_module);

    if (lsmcf) {
        ngx_http_limit_sliding_init_counters(lsmcf);
        ngx_http_limit_sliding_enter_redises(lsmcf);
    }

    return NGX_OK;
}
