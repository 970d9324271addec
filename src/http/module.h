/* Copyright (C) the limit_sliding authors */

/*
 * The border between NGINX's C and the module's C++.  src/shim has the
 * structures by which NGINX finds the module, and calls these functions of C++
 * from them.  Functions that return ngx_int_t return NGX_OK, or NGX_ERROR after
 * an error that is logged.
 */

#ifndef _NGX_HTTP_LIMIT_SLIDING_MODULE_H_INCLUDED_
#define _NGX_HTTP_LIMIT_SLIDING_MODULE_H_INCLUDED_


#ifdef __cplusplus
extern "C" {
#endif

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/* NGINX finds the modules by these names. */
extern ngx_module_t  ngx_http_limit_sliding_module;
extern ngx_module_t  ngx_http_limit_sliding_usage_filter_module;
extern ngx_module_t  ngx_http_limit_sliding_late_filter_module;


#pragma GCC visibility push(hidden)

/* The filters after ours. */
extern ngx_http_output_header_filter_pt
    ngx_http_limit_sliding_next_header_filter;
extern ngx_http_output_header_filter_pt
    ngx_http_limit_sliding_late_next_header_filter;
extern ngx_http_output_header_filter_pt
    ngx_http_limit_sliding_usage_next_header_filter;
extern ngx_http_output_body_filter_pt
    ngx_http_limit_sliding_usage_next_body_filter;


/* The error about a structure that differs. */
#define NGX_HTTP_LIMIT_SLIDING_OTHER                                          \
    "limit_sliding was built for another %s than this NGINX has: "            \
    "build it from the source of this NGINX"


/* What a configuration needs of NGINX, a mask. */
#define NGX_HTTP_LIMIT_SLIDING_BEFORE_AUTH  0x01
#define NGX_HTTP_LIMIT_SLIDING_AFTER_AUTH   0x02
#define NGX_HTTP_LIMIT_SLIDING_SETTLES      0x04
#define NGX_HTTP_LIMIT_SLIDING_HEADERS      0x08
#define NGX_HTTP_LIMIT_SLIDING_ONE_OF_EACH  0x10
#define NGX_HTTP_LIMIT_SLIDING_USAGE        0x20


/* Setters of directives, as ngx_command_t has them. */
typedef char *ngx_http_limit_sliding_set_t(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

ngx_http_limit_sliding_set_t
    ngx_http_limit_sliding_zone, ngx_http_limit_sliding_redis,
    ngx_http_limit_sliding, ngx_http_limit_sliding_status,
    ngx_http_limit_sliding_log_level, ngx_http_limit_sliding_dry_run,
    ngx_http_limit_sliding_api, ngx_http_limit_sliding_headers,
    ngx_http_limit_sliding_client, ngx_http_limit_sliding_usage;


/* The configuration, in the order of calls.  complete() runs once all of it is
 * read, and so does needs(), which returns the mask. */
void *ngx_http_limit_sliding_create_main_conf(ngx_conf_t *cf);
void *ngx_http_limit_sliding_create_loc_conf(ngx_conf_t *cf);
ngx_int_t ngx_http_limit_sliding_add_variables(ngx_conf_t *cf);
ngx_int_t ngx_http_limit_sliding_usage_add_variables(ngx_conf_t *cf);
char *ngx_http_limit_sliding_init_main_conf(ngx_conf_t *cf, void *conf);
char *ngx_http_limit_sliding_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
ngx_int_t ngx_http_limit_sliding_complete(ngx_conf_t *cf);
ngx_uint_t ngx_http_limit_sliding_needs(ngx_conf_t *cf);

/* Cycles and processes. */
ngx_int_t ngx_http_limit_sliding_init_module(ngx_cycle_t *cycle);
ngx_int_t ngx_http_limit_sliding_init_process(ngx_cycle_t *cycle);
void ngx_http_limit_sliding_exit_process(ngx_cycle_t *cycle);


/* Run the limits of a stage.  They are the checkers of their places in NGINX's
 * phases, whose own checkers would double the cost for a request without
 * limits. */
ngx_int_t ngx_http_limit_sliding_check_before_auth(ngx_http_request_t *r,
    ngx_http_phase_handler_t *ph);
ngx_int_t ngx_http_limit_sliding_check_after_auth(ngx_http_request_t *r,
    ngx_http_phase_handler_t *ph);

/* Handles the log phase, if a limit has "count_status=" or "settle=": charges
 * the units of the final cost that the request has not reserved, or refunds the
 * reserved units beyond that cost. */
ngx_int_t ngx_http_limit_sliding_settle(ngx_http_request_t *r);

/* Tells clients their limits, as of the decision. */
ngx_int_t ngx_http_limit_sliding_header_filter(ngx_http_request_t *r);

/* Leaves one field of each of our names, once all fields are there. */
ngx_int_t ngx_http_limit_sliding_late_header_filter(ngx_http_request_t *r);

/* Read the usage of a request from its response. */
ngx_int_t ngx_http_limit_sliding_usage_header_filter(ngx_http_request_t *r);
ngx_int_t ngx_http_limit_sliding_usage_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);

#pragma GCC visibility pop


#ifdef __cplusplus
}
#endif


#endif /* _NGX_HTTP_LIMIT_SLIDING_MODULE_H_INCLUDED_ */
