
/*
 * Copyright (C) the limit_sliding authors
 */


/* What the files of limit_sliding_api share. */


#ifndef _NGX_HTTP_LIMIT_SLIDING_API_H_INCLUDED_
#define _NGX_HTTP_LIMIT_SLIDING_API_H_INCLUDED_


#include "http/http.h"


#define NGX_HTTP_LIMIT_SLIDING_VERSION  "0.1.0"


/* A text that grows; `failed` once there is no memory. */

typedef struct {
    ngx_pool_t                      *pool;
    ngx_chain_t                     *first;
    ngx_chain_t                    **next;
    ngx_buf_t                       *buf;
    size_t                           len;
    unsigned                         failed:1;
} ngx_http_limit_sliding_text_t;


/* A zone's numbers at one moment. */

typedef struct {
    ngx_http_limit_sliding_zone_t   *zone;
    limit_sliding_counters_t         counters;
    uint64_t                         slots;
    uint64_t                         keys;
} ngx_http_limit_sliding_report_t;


/* A request for one key. */

typedef struct {
    ngx_http_limit_sliding_zone_t   *zone;
    ngx_str_t                        key;
    ngx_str_t                        rate;        /* PUT: as given */
    uint32_t                         own;         /* PUT: that, as a limit; of
                                                     the key, or one of
                                                     LIMIT_SLIDING_OWN_* */
    limit_sliding_claim_t            claim;       /* a look */
    limit_sliding_verdict_t          verdict;
    uint32_t                         limit;       /* where it has none of its
                                                     own */
    ngx_uint_t                       unlimited;   /* that is not known, or the
                                                     last request had none */

    /* in a zone of Redis */
    ngx_http_request_t              *request;
    ngx_http_limit_sliding_remote_t  remote;
    ngx_http_limit_sliding_waiter_t  waiter;
    ngx_http_limit_sliding_order_e   order;       /* that is under way */
    ngx_uint_t                       ordered;
} ngx_http_limit_sliding_key_t;


/* text */
void ngx_http_limit_sliding_text_init(ngx_http_limit_sliding_text_t *text,
    ngx_pool_t *pool);
void ngx_cdecl ngx_http_limit_sliding_print(
    ngx_http_limit_sliding_text_t *text, const char *fmt, ...);
void ngx_http_limit_sliding_print_json(ngx_http_limit_sliding_text_t *text,
    ngx_str_t *s);
void ngx_http_limit_sliding_print_label(ngx_http_limit_sliding_text_t *text,
    ngx_str_t *s);
void ngx_http_limit_sliding_print_uri(ngx_http_limit_sliding_text_t *text,
    ngx_str_t *s);

/* address */
void ngx_http_limit_sliding_print_key(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t *key);
ngx_int_t ngx_http_limit_sliding_read_key(ngx_http_request_t *r,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t *key);

/* report */
ngx_http_limit_sliding_report_t *ngx_http_limit_sliding_report(
    ngx_http_request_t *r, ngx_uint_t *n);

/* By limit_sliding_count_t. */
extern char  *ngx_http_limit_sliding_count_names[];

/* json */
ngx_int_t ngx_http_limit_sliding_api_json(ngx_http_request_t *r);

/* metrics */
ngx_int_t ngx_http_limit_sliding_api_metrics(ngx_http_request_t *r);
void ngx_http_limit_sliding_metrics_head(ngx_http_limit_sliding_text_t *text,
    char *name, char *type, char *help);

/* dashboard */
ngx_int_t ngx_http_limit_sliding_api_dashboard(ngx_http_request_t *r);

/* api redis */
void ngx_http_limit_sliding_json_redises(ngx_http_request_t *r,
    ngx_http_limit_sliding_text_t *text);
void ngx_http_limit_sliding_json_leases(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_zone_t *zone);
void ngx_http_limit_sliding_metrics_redises(ngx_http_request_t *r,
    ngx_http_limit_sliding_text_t *text);

/* key */
ngx_int_t ngx_http_limit_sliding_api_key(ngx_http_request_t *r,
    ngx_http_limit_sliding_zone_t *zone);
void ngx_http_limit_sliding_key_forget(ngx_http_limit_sliding_key_t *key);
ngx_int_t ngx_http_limit_sliding_key_send(ngx_http_request_t *r,
    ngx_http_limit_sliding_key_t *key);

/* key remote */
ngx_int_t ngx_http_limit_sliding_key_remote(ngx_http_request_t *r,
    ngx_http_limit_sliding_key_t *key);

/* api */
ngx_int_t ngx_http_limit_sliding_api_header(ngx_http_request_t *r, char *name,
    char *value);
ngx_int_t ngx_http_limit_sliding_api_send(ngx_http_request_t *r,
    ngx_uint_t status, char *type, ngx_http_limit_sliding_text_t *text);
ngx_int_t ngx_cdecl ngx_http_limit_sliding_api_error(ngx_http_request_t *r,
    ngx_uint_t status, const char *fmt, ...);


#endif /* _NGX_HTTP_LIMIT_SLIDING_API_H_INCLUDED_ */
