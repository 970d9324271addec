
/*
 * Copyright (C) the limit_sliding authors
 */


/* The functions that the table of directives and the hooks call: all in C++. */


#ifndef LIMIT_SLIDING_HTTP_MODULE_H
#define LIMIT_SLIDING_HTTP_MODULE_H


#ifdef __cplusplus
extern "C" {
#endif


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


extern ngx_module_t  ngx_http_limit_sliding_module;
extern ngx_module_t  ngx_http_limit_sliding_usage_filter_module;


typedef char *ngx_http_limit_sliding_directive_pt(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);

ngx_http_limit_sliding_directive_pt  ngx_http_limit_sliding_zone;
ngx_http_limit_sliding_directive_pt  ngx_http_limit_sliding_redis;
ngx_http_limit_sliding_directive_pt  ngx_http_limit_sliding;
ngx_http_limit_sliding_directive_pt  ngx_http_limit_sliding_status;
ngx_http_limit_sliding_directive_pt  ngx_http_limit_sliding_log_level;
ngx_http_limit_sliding_directive_pt  ngx_http_limit_sliding_dry_run;
ngx_http_limit_sliding_directive_pt  ngx_http_limit_sliding_api;
ngx_http_limit_sliding_directive_pt  ngx_http_limit_sliding_headers;
ngx_http_limit_sliding_directive_pt  ngx_http_limit_sliding_client;
ngx_http_limit_sliding_directive_pt  ngx_http_limit_sliding_usage;


ngx_int_t ngx_http_limit_sliding_preconfigure(ngx_conf_t *cf);
ngx_int_t ngx_http_limit_sliding_init(ngx_conf_t *cf);
void *ngx_http_limit_sliding_create_main_conf(ngx_conf_t *cf);
char *ngx_http_limit_sliding_init_main_conf(ngx_conf_t *cf, void *conf);
void *ngx_http_limit_sliding_create_conf(ngx_conf_t *cf);
char *ngx_http_limit_sliding_merge_conf(ngx_conf_t *cf, void *parent,
    void *child);
ngx_int_t ngx_http_limit_sliding_init_module(ngx_cycle_t *cycle);
ngx_int_t ngx_http_limit_sliding_init_process(ngx_cycle_t *cycle);
void ngx_http_limit_sliding_exit_process(ngx_cycle_t *cycle);

ngx_int_t ngx_http_limit_sliding_usage_preconfigure(ngx_conf_t *cf);
ngx_int_t ngx_http_limit_sliding_usage_init(ngx_conf_t *cf);
void *ngx_http_limit_sliding_usage_create_main_conf(ngx_conf_t *cf);
void *ngx_http_limit_sliding_usage_create_conf(ngx_conf_t *cf);
char *ngx_http_limit_sliding_usage_merge_conf(ngx_conf_t *cf, void *parent,
    void *child);


#ifdef __cplusplus
}
#endif


#endif /* LIMIT_SLIDING_HTTP_MODULE_H */
