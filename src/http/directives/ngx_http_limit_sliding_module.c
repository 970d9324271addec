
/*
 * Copyright (C) the limit_sliding authors
 */


/* The C names by which NGINX knows the modules.  Everything else is C++. */


#include "http/module.h"


static ngx_command_t  ngx_http_limit_sliding_commands[] = {

    { ngx_string("limit_sliding_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_limit_sliding_zone, 0, 0, NULL },

    { ngx_string("limit_sliding_redis"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_BLOCK|NGX_CONF_TAKE1,
      ngx_http_limit_sliding_redis, 0, 0, NULL },

    { ngx_string("limit_sliding"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_limit_sliding, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("limit_sliding_status"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_limit_sliding_status, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("limit_sliding_log_level"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_limit_sliding_log_level, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("limit_sliding_dry_run"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_http_limit_sliding_dry_run, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("limit_sliding_api"),
      NGX_HTTP_LOC_CONF|NGX_CONF_ANY,
      ngx_http_limit_sliding_api, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("limit_sliding_headers"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_limit_sliding_headers, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("limit_sliding_client"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_limit_sliding_client, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

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


static ngx_command_t  ngx_http_limit_sliding_usage_commands[] = {

    { ngx_string("limit_sliding_usage"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_limit_sliding_usage, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_limit_sliding_usage_filter_module_ctx = {
    ngx_http_limit_sliding_usage_preconfigure, /* preconfiguration */
    ngx_http_limit_sliding_usage_init,         /* postconfiguration */

    ngx_http_limit_sliding_usage_create_main_conf,
    NULL,                                      /* init main configuration */

    NULL,                                      /* create server configuration */
    NULL,                                      /* merge server configuration */

    ngx_http_limit_sliding_usage_create_conf,  /* create location conf */
    ngx_http_limit_sliding_usage_merge_conf    /* merge location conf */
};


ngx_module_t  ngx_http_limit_sliding_usage_filter_module = {
    NGX_MODULE_V1,
    &ngx_http_limit_sliding_usage_filter_module_ctx,
    ngx_http_limit_sliding_usage_commands,     /* module directives */
    NGX_HTTP_MODULE,                           /* module type */
    NULL,                                      /* init master */
    NULL,                                      /* init module */
    NULL,                                      /* init process */
    NULL,                                      /* init thread */
    NULL,                                      /* exit thread */
    NULL,                                      /* exit process */
    NULL,                                      /* exit master */
    NGX_MODULE_V1_PADDING
};
