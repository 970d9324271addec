
/*
 * Copyright (C) the limit_sliding authors
 */


#ifndef _NGX_HTTP_LIMIT_SLIDING_H_INCLUDED_
#define _NGX_HTTP_LIMIT_SLIDING_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "limiter.h"


#if (NGX_PTR_SIZE < 8)
#error "limit_sliding needs a 64-bit platform"
#endif


/* A zone as this configuration defines it; lives as long as its cycle. */

typedef struct {
    ngx_str_t                       name;
    ngx_http_complex_value_t        key;
    ngx_int_t                       key_index;   /* of the variable that the
                                                    key is, or NGX_ERROR */
    limit_sliding_policy_t          policy;
    uint32_t                        limit;

    ngx_shm_zone_t                 *shm_zone;    /* NULL: named, not defined */
    limit_sliding_zone_t           *zone;        /* in shared memory */

    u_char                         *file;        /* of the first mention */
    ngx_uint_t                      line;

    ngx_str_t                       restarted;   /* why a reload empties it */

    /* this worker's */
    ngx_msec_t                      log_after;
    ngx_uint_t                      log_omitted;
} ngx_http_limit_sliding_zone_t;


typedef struct {
    ngx_array_t                     zones;       /* of pointers to the above */
} ngx_http_limit_sliding_main_conf_t;


typedef struct {
    ngx_http_limit_sliding_zone_t  *zone;
} ngx_http_limit_sliding_limit_t;


typedef struct {
    ngx_array_t                    *limits;      /* NULL: off */
    ngx_uint_t                      status_code;
    ngx_uint_t                      log_level;   /* 0: off */
    ngx_msec_t                      log_every;
    ngx_flag_t                      dry_run;
} ngx_http_limit_sliding_conf_t;


typedef enum {
    NGX_HTTP_LIMIT_SLIDING_PASSED = 0,
    NGX_HTTP_LIMIT_SLIDING_DELAYED,
    NGX_HTTP_LIMIT_SLIDING_REJECTED,
    NGX_HTTP_LIMIT_SLIDING_DELAYED_DRY_RUN,
    NGX_HTTP_LIMIT_SLIDING_REJECTED_DRY_RUN
} ngx_http_limit_sliding_status_e;


/*
 * What was decided for a request: every limit once, however often the request
 * is redirected.  It outlives r->ctx in a cleanup record of the request's
 * pool.
 */

typedef struct {
    ngx_pool_cleanup_t               cleanup;
    ngx_http_limit_sliding_status_e  status;
    uint64_t                         now_ms;
    limit_sliding_claim_t           *described;  /* NULL: nothing accounted */
    ngx_uint_t                       nclaims;
    limit_sliding_claim_t            claims[1];
} ngx_http_limit_sliding_ctx_t;


/* A parameter of a directive: `name` is "zone=", `word` "zone=one:1m". */

typedef struct {
    ngx_str_t                        name;
    ngx_str_t                        word;
    ngx_str_t                        value;
} ngx_http_limit_sliding_param_t;


/* zone conf */
char *ngx_http_limit_sliding_zone(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* conf */
char *ngx_http_limit_sliding_params(ngx_conf_t *cf, ngx_uint_t i,
    ngx_http_limit_sliding_param_t *params);
char *ngx_http_limit_sliding(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_limit_sliding_status(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_limit_sliding_log_level(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* zone */
ngx_http_limit_sliding_zone_t *ngx_http_limit_sliding_get_zone(ngx_conf_t *cf,
    ngx_str_t *name);
ngx_int_t ngx_http_limit_sliding_add_zone(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, size_t size);
ngx_int_t ngx_http_limit_sliding_init_zones(ngx_conf_t *cf);
ngx_int_t ngx_http_limit_sliding_init_module(ngx_cycle_t *cycle);

/* handler */
ngx_int_t ngx_http_limit_sliding_handler(ngx_http_request_t *r);
ngx_http_limit_sliding_ctx_t *ngx_http_limit_sliding_get_ctx(
    ngx_http_request_t *r);

/* log */
void ngx_http_limit_sliding_log_rejected(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_ctx_t *ctx,
    limit_sliding_verdict_t *verdict);
void ngx_http_limit_sliding_log_long_key(ngx_http_request_t *r,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t *key);

/* variables */
ngx_int_t ngx_http_limit_sliding_add_variables(ngx_conf_t *cf);


extern ngx_module_t  ngx_http_limit_sliding_module;


#endif /* _NGX_HTTP_LIMIT_SLIDING_H_INCLUDED_ */
