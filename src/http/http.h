
/*
 * Copyright (C) the limit_sliding authors
 */


#ifndef _NGX_HTTP_LIMIT_SLIDING_H_INCLUDED_
#define _NGX_HTTP_LIMIT_SLIDING_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "core/limiter.h"
#include "core/stats.h"
#include "redis/client.h"


#if (NGX_PTR_SIZE < 8)
#error "limit_sliding needs a 64-bit platform"
#endif


/* ngx_http_limit_sliding_conf_t.headers */

#define NGX_HTTP_LIMIT_SLIDING_RETRY_AFTER  0x01
#define NGX_HTTP_LIMIT_SLIDING_DRAFT        0x02
#define NGX_HTTP_LIMIT_SLIDING_X            0x04

/* A character of a variable's name. */

#define ngx_http_limit_sliding_is_word(ch)                                    \
    (((ch) >= 'a' && (ch) <= 'z') || ((ch) >= 'A' && (ch) <= 'Z')             \
     || ((ch) >= '0' && (ch) <= '9') || (ch) == '_')

/* A list member in a header, but for its name: with two numbers. */

#define NGX_HTTP_LIMIT_SLIDING_MEMBER       (sizeof(";q=;w=, ")               \
                                             + 2 * NGX_INT64_LEN)

/* Prefixes of $limit_sliding_client by default. */

#define NGX_HTTP_LIMIT_SLIDING_IPV4         32
#define NGX_HTTP_LIMIT_SLIDING_IPV6         64


/* Text, variables and their combination. */

typedef struct {
    ngx_http_complex_value_t        complex;
    ngx_int_t                       index;       /* of the variable that is
                                                    all of it, or NGX_ERROR */
} ngx_http_limit_sliding_value_t;


/* What the keys of a zone are. */

typedef enum {
    NGX_HTTP_LIMIT_SLIDING_TEXTS = 0,
    NGX_HTTP_LIMIT_SLIDING_ADDRESSES,            /* $binary_remote_addr */
    NGX_HTTP_LIMIT_SLIDING_CLIENTS               /* $limit_sliding_client */
} ngx_http_limit_sliding_keys_e;


/* A zone as this configuration defines it; lives as long as its cycle. */

typedef struct {
    ngx_str_t                       name;
    ngx_str_t                       quoted;      /* for a header */
    ngx_http_limit_sliding_value_t  key;
    limit_sliding_policy_t          policy;
    uint32_t                        limit;       /* 0: rate is a variable */
    ngx_http_limit_sliding_value_t *rate;        /* NULL: limit is static */
    ngx_str_t                       rate_text;
    ngx_flag_t                      top;
    ngx_http_limit_sliding_keys_e   keys;
    ngx_flag_t                      variable;    /* rates of some places are */

    ngx_shm_zone_t                 *shm_zone;    /* NULL: named, not defined */
    limit_sliding_zone_t           *zone;        /* in shared memory */
    limit_sliding_aside_t           aside;       /* there, too */

    u_char                         *file;        /* of the first mention */
    ngx_uint_t                      line;

    ngx_http_limit_sliding_redis_t *redis;       /* NULL: of one node */
    ngx_http_limit_sliding_remote_zone_t
                                    remote;

    ngx_str_t                       restarted;   /* why a reload empties it */

    /* the longest prefixes that any place cuts clients to, for the API */
    ngx_uint_t                      client_ipv4;
    ngx_uint_t                      client_ipv6;
    unsigned                        clients:1;   /* they are known */

    /* this worker's */
    limit_sliding_counters_t       *counters;
    limit_sliding_sampler_t         sampler;
    ngx_msec_t                      log_after;
    ngx_uint_t                      log_omitted;
} ngx_http_limit_sliding_zone_t;


typedef struct {
    ngx_uint_t                      from;
    ngx_uint_t                      to;
} ngx_http_limit_sliding_statuses_t;


/* A limit_sliding directive. */

typedef struct {
    ngx_http_limit_sliding_zone_t  *zone;
    uint32_t                        limit;       /* 0: none that is static */
    uint32_t                        cost;

    unsigned                        evaluated:1; /* some of these are set */
    unsigned                        dry_run:1;
    unsigned                        after_auth:1;

    ngx_http_limit_sliding_value_t *rates[3];    /* the limit's, the zone's;
                                                    ends with NULL */
    ngx_http_limit_sliding_value_t *cost_value;
    ngx_array_t                    *count_status;

    ngx_str_t                       policy;      /* of the static limit, for
                                                    header fields */
    ngx_str_t                       digits;

    /* the static rate, until zones are known */
    limit_sliding_rate_t            rate;        /* of count 0: not given */
    ngx_str_t                       rate_word;
    u_char                         *file;
    ngx_uint_t                      line;
} ngx_http_limit_sliding_limit_t;


typedef enum {
    NGX_HTTP_LIMIT_SLIDING_BEFORE_AUTH = 0,
    NGX_HTTP_LIMIT_SLIDING_AFTER_AUTH,
    NGX_HTTP_LIMIT_SLIDING_NSTAGES
} ngx_http_limit_sliding_stage_e;


/*
 * Limits that are decided together, all or nothing: the enforced ones of a
 * stage, or, next to them, those in dry run.
 */

typedef struct ngx_http_limit_sliding_group_s  ngx_http_limit_sliding_group_t;

struct ngx_http_limit_sliding_group_s {
    ngx_http_limit_sliding_limit_t *limits;
    ngx_uint_t                      nlimits;
    ngx_uint_t                      nclaims;     /* of the next ones, too */
    unsigned                        single:1;    /* one enforced limit is all */
    unsigned                        dry_run:1;
    unsigned                        leaky:1;     /* some may delay */
    unsigned                        remote:1;    /* the last ones are of one
                                                    Redis */
    ngx_http_limit_sliding_group_t *next;
};


/* The limits of one place of the configuration. */

typedef struct {
    ngx_array_t                     limits;

    /* by limit_sliding_dry_run; the first of a stage, or NULL */
    ngx_http_limit_sliding_group_t
                              *groups[2][NGX_HTTP_LIMIT_SLIDING_NSTAGES];
} ngx_http_limit_sliding_set_t;


typedef struct {
    ngx_array_t                     zones;       /* of pointers to zones */
    ngx_array_t                     sets;        /* of pointers to sets */
    ngx_array_t                     redises;     /* of pointers to them */

    /* used anywhere */
    unsigned                        after_auth:1;
    unsigned                        count_status:1;
    unsigned                        header_filter:1;
} ngx_http_limit_sliding_main_conf_t;


typedef struct {
    ngx_http_limit_sliding_set_t   *set;         /* NULL: off */
    ngx_http_limit_sliding_group_t
                              *groups[NGX_HTTP_LIMIT_SLIDING_NSTAGES];
    ngx_uint_t                      status_code;
    ngx_uint_t                      log_level;   /* 0: off */
    ngx_msec_t                      log_every;
    ngx_flag_t                      dry_run;
    ngx_uint_t                      headers;
    ngx_uint_t                      client_ipv4; /* prefix, in bits */
    ngx_uint_t                      client_ipv6;
    ngx_flag_t                      api_write;   /* unset: no API here */
} ngx_http_limit_sliding_conf_t;


/* In this order: of several limits of a request the last one prevails. */

typedef enum {
    NGX_HTTP_LIMIT_SLIDING_PASSED = 0,
    NGX_HTTP_LIMIT_SLIDING_DELAYED_DRY_RUN,
    NGX_HTTP_LIMIT_SLIDING_DELAYED,
    NGX_HTTP_LIMIT_SLIDING_REJECTED_DRY_RUN,
    NGX_HTTP_LIMIT_SLIDING_REJECTED
} ngx_http_limit_sliding_status_e;


/* A request that waits for a Redis, and what it goes on with. */

typedef struct {
    ngx_http_limit_sliding_waiter_t  waiter;
    ngx_http_request_t              *request;    /* NULL: never waited */
    ngx_http_limit_sliding_redis_t  *redis;
    ngx_uint_t                       nlocal;
    ngx_uint_t                       nremote;
    ngx_http_limit_sliding_group_t  *group;      /* NULL: does not wait */
    ngx_msec_t                       delay;
} ngx_http_limit_sliding_wait_t;


/*
 * What was decided for a request: every limit once, however often the request
 * is redirected.  It outlives r->ctx in a cleanup record of the request's
 * pool.  A claim's data is its ngx_http_limit_sliding_limit_t, its remote an
 * ngx_http_limit_sliding_remote_t, or NULL in a zone of one node.
 */

typedef struct {
    ngx_pool_cleanup_t               cleanup;
    ngx_http_limit_sliding_status_e  status;
    uint32_t                         waiting;    /* suspended, to be resumed */
    ngx_uint_t                       nclaims;    /* 0: nothing accounted, and
                                                    the rest is not set */
    ngx_uint_t                       headers;    /* where it was decided */
    uint64_t                         now_ms;
    ngx_http_limit_sliding_wait_t   *wait;       /* NULL: none so far */
    limit_sliding_claim_t           *described;
    limit_sliding_claim_t            claims[1];
} ngx_http_limit_sliding_ctx_t;


/*
 * A parameter of a directive: `name` is "zone=", `word` "zone=one:1m"; of one
 * without a value both are "dry_run".
 */

typedef struct {
    ngx_str_t                        name;
    ngx_str_t                        word;
    ngx_str_t                        value;
} ngx_http_limit_sliding_param_t;


/* conf */
char *ngx_http_limit_sliding_params(ngx_conf_t *cf, ngx_uint_t i,
    ngx_http_limit_sliding_param_t *params);
char *ngx_http_limit_sliding_status(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_limit_sliding_log_level(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_limit_sliding_headers(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* value */
char *ngx_http_limit_sliding_compile(ngx_conf_t *cf, ngx_str_t *text,
    ngx_http_limit_sliding_value_t *value);
char *ngx_http_limit_sliding_rate_value(ngx_conf_t *cf,
    ngx_http_limit_sliding_param_t *param,
    ngx_http_limit_sliding_value_t **value, limit_sliding_rate_t *rate);
ngx_int_t ngx_http_limit_sliding_rate_limit(ngx_conf_t *cf, ngx_str_t *word,
    limit_sliding_rate_t *rate, uint64_t window_ms, uint32_t *limit,
    u_char *file, ngx_uint_t line);
ngx_int_t ngx_http_limit_sliding_parse_rate(ngx_str_t *text,
    uint64_t window_ms, uint32_t *limit);
ngx_int_t ngx_http_limit_sliding_evaluate(ngx_http_request_t *r,
    ngx_http_limit_sliding_limit_t *limit, limit_sliding_claim_t *claim);

extern ngx_module_t  ngx_http_limit_sliding_module;


/* zone conf */
char *ngx_http_limit_sliding_zone(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* algorithm */
char *ngx_http_limit_sliding_set_algorithm(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, ngx_http_limit_sliding_param_t *param,
    ngx_http_limit_sliding_param_t *precision,
    ngx_http_limit_sliding_param_t *burst);
ngx_str_t *ngx_http_limit_sliding_algorithm(
    limit_sliding_algorithm_t algorithm);

/* zone */
ngx_http_limit_sliding_zone_t *ngx_http_limit_sliding_get_zone(ngx_conf_t *cf,
    ngx_str_t *name);
ngx_int_t ngx_http_limit_sliding_add_zone(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, size_t size);
ngx_int_t ngx_http_limit_sliding_init_zones(ngx_conf_t *cf,
    ngx_http_limit_sliding_main_conf_t *lsmcf);
ngx_int_t ngx_http_limit_sliding_init_module(ngx_cycle_t *cycle);

/* reuse */
ngx_int_t ngx_http_limit_sliding_reuse_zone(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone);

extern ngx_uint_t  ngx_http_limit_sliding_tags[2];

/* redis conf */
char *ngx_http_limit_sliding_redis(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_limit_sliding_zone_redis(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone,
    ngx_http_limit_sliding_param_t *param);
char *ngx_http_limit_sliding_zone_lease(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone,
    ngx_http_limit_sliding_param_t *param);
ngx_int_t ngx_http_limit_sliding_init_redises(ngx_conf_t *cf,
    ngx_http_limit_sliding_main_conf_t *lsmcf);
void ngx_http_limit_sliding_enter_redises(
    ngx_http_limit_sliding_main_conf_t *lsmcf);
void ngx_http_limit_sliding_exit_process(ngx_cycle_t *cycle);

/* limit conf */
char *ngx_http_limit_sliding(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* set */
ngx_int_t ngx_http_limit_sliding_init_sets(ngx_conf_t *cf,
    ngx_http_limit_sliding_main_conf_t *lsmcf);

/* handler */
ngx_int_t ngx_http_limit_sliding_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_limit_sliding_after_auth_handler(ngx_http_request_t *r);

ngx_int_t ngx_http_limit_sliding_decided(ngx_http_limit_sliding_ctx_t *ctx,
    ngx_uint_t n, limit_sliding_claim_t *claim);

/* remote */
ngx_int_t ngx_http_limit_sliding_add_remote(ngx_http_request_t *r,
    limit_sliding_claim_t *claim, ngx_http_limit_sliding_remote_zone_t *zone,
    ngx_str_t *key);
ngx_int_t ngx_http_limit_sliding_decide_remote(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t n);
ngx_int_t ngx_http_limit_sliding_conclude(ngx_http_limit_sliding_ctx_t *ctx);

/* refusal */
ngx_int_t ngx_http_limit_sliding_refuse(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t nlocal, ngx_uint_t nremote);
ngx_int_t ngx_http_limit_sliding_refuse_local(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t nlocal, ngx_uint_t nremote);

/* apply */
ngx_int_t ngx_http_limit_sliding_reject(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_ctx_t *ctx);
void ngx_http_limit_sliding_would_reject(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_ctx_t *ctx);
void ngx_http_limit_sliding_one_retry_after(ngx_http_request_t *r);

/* stats */
void ngx_http_limit_sliding_init_counters(
    ngx_http_limit_sliding_main_conf_t *lsmcf);
void ngx_http_limit_sliding_account(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t first, ngx_uint_t rejected);
void ngx_http_limit_sliding_add_offender(ngx_http_request_t *r,
    limit_sliding_claim_t *claim);
ngx_int_t ngx_http_limit_sliding_own_limit(limit_sliding_claim_t *claim,
    limit_sliding_own_t *own);

/* delay */
ngx_msec_t ngx_http_limit_sliding_delay(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_ctx_t *ctx,
    ngx_uint_t first);
ngx_int_t ngx_http_limit_sliding_suspend(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_msec_t delay);
void ngx_http_limit_sliding_go_on(ngx_http_request_t *r);

/* count */
char *ngx_http_limit_sliding_count_status(ngx_conf_t *cf,
    ngx_http_limit_sliding_limit_t *limit,
    ngx_http_limit_sliding_param_t *param);
ngx_int_t ngx_http_limit_sliding_count_handler(ngx_http_request_t *r);

/* headers */
void ngx_http_limit_sliding_init_headers(void);
ngx_int_t ngx_http_limit_sliding_push(ngx_http_request_t *r, char *name,
    size_t len, ngx_str_t *value);
u_char *ngx_http_limit_sliding_number(u_char *p, uint64_t n, ngx_str_t *text);
ngx_int_t ngx_http_limit_sliding_init_fields(ngx_pool_t *pool,
    ngx_http_limit_sliding_limit_t *limit);

/* client */
char *ngx_http_limit_sliding_client(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_int_t ngx_http_limit_sliding_client_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
void ngx_http_limit_sliding_learn_prefixes(ngx_conf_t *cf,
    ngx_http_limit_sliding_conf_t *conf);
ngx_uint_t ngx_http_limit_sliding_client_part(ngx_str_t *address,
    ngx_uint_t ipv4, ngx_uint_t ipv6);
void ngx_http_limit_sliding_cut(u_char *dst, ngx_str_t *address,
    ngx_uint_t prefix);

/* log */
ngx_int_t ngx_http_limit_sliding_init_log(ngx_conf_t *cf);
void ngx_http_limit_sliding_log_rejected(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_ctx_t *ctx);
void ngx_http_limit_sliding_log_delayed(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, limit_sliding_claim_t *claim,
    uint64_t now_ms);
void ngx_http_limit_sliding_log_long_key(ngx_http_request_t *r,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t key);
void ngx_http_limit_sliding_log_bad_value(ngx_http_request_t *r,
    ngx_http_limit_sliding_zone_t *zone, char *name, ngx_str_t *value);

/* variables */
ngx_int_t ngx_http_limit_sliding_add_variables(ngx_conf_t *cf);

extern ngx_str_t  ngx_http_limit_sliding_sources[];

/* api */
char *ngx_http_limit_sliding_api(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_uint_t ngx_http_limit_sliding_merge_api(ngx_conf_t *cf,
    ngx_http_limit_sliding_conf_t *prev, ngx_http_limit_sliding_conf_t *conf);


#include "http/context.h"


#endif /* _NGX_HTTP_LIMIT_SLIDING_H_INCLUDED_ */
