
/*
 * Copyright (C) the limit_sliding authors
 */

/* What the files of limit_sliding_api share. */

#ifndef LIMIT_SLIDING_HTTP_API_API_HPP
#define LIMIT_SLIDING_HTTP_API_API_HPP

#include "http/context.hpp"
#include "http/http.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

constexpr char kVersion[] = "0.1.0";

/* A text that grows; `failed` once there is no memory. */

struct Writer {
    ngx_pool_t *pool;
    ngx_chain_t *first;
    ngx_chain_t **next;
    ngx_buf_t *buf;
    size_t len;
    unsigned failed : 1;
};

/* A zone's numbers at one moment. */

struct ZoneReport {
    ZoneConf *zone;
    Counters counters;
    uint64_t slots;
    uint64_t keys;
};

/* A request for one key. */

struct KeyRequest {
    ZoneConf *zone;
    ngx_str_t key;
    ngx_str_t rate; /* PUT: as given */
    uint32_t own;   /* PUT: that, as a limit; of
                                                     the key, or one of
                                                     LIMIT_SLIDING_OWN_* */
    Claim claim;    /* a look */
    Verdict verdict;
    uint32_t limit;       /* where it has none of its
                                                     own */
    ngx_uint_t unlimited; /* that is not known, or the
                                                     last request had none */

    /* in a zone of Redis */
    ngx_http_request_t *request;
    RemoteClaim remote;
    Waiter waiter;
    KeyCommand order; /* that is under way */
    ngx_uint_t ordered;
};

/* text */
void text_init(Writer *text, ngx_pool_t *pool);
void ngx_cdecl print(Writer *text, const char *fmt, ...);
void print_json(Writer *text, ngx_str_t *s);
void print_label(Writer *text, ngx_str_t *s);
void print_uri(Writer *text, ngx_str_t *s);

/* address */
void print_key(Writer *text, ZoneConf *zone, ngx_str_t *key);
ngx_int_t read_key(ngx_http_request_t *r, ZoneConf *zone, ngx_str_t *key);

/* report */
ZoneReport *report_zones(ngx_http_request_t *r, ngx_uint_t *n);

/* By Count. */
extern char *count_names[];

/* json */
ngx_int_t api_json(ngx_http_request_t *r);

/* metrics */
ngx_int_t api_metrics(ngx_http_request_t *r);
void metrics_head(Writer *text, char *name, char *type, char *help);

/* dashboard */
ngx_int_t api_dashboard(ngx_http_request_t *r);

/* api redis */
void json_redises(ngx_http_request_t *r, Writer *text);
void json_leases(Writer *text, ZoneConf *zone);
void metrics_redises(ngx_http_request_t *r, Writer *text);

/* key */
ngx_int_t api_key(ngx_http_request_t *r, ZoneConf *zone);
void key_forget(KeyRequest *key);
ngx_int_t key_send(ngx_http_request_t *r, KeyRequest *key);

/* key remote */
ngx_int_t key_remote(ngx_http_request_t *r, KeyRequest *key);

/* api */
ngx_int_t api_header(ngx_http_request_t *r, char *name, char *value);
ngx_int_t api_send(ngx_http_request_t *r, ngx_uint_t status, char *type,
                   Writer *text);
ngx_int_t ngx_cdecl api_error(ngx_http_request_t *r, ngx_uint_t status,
                              const char *fmt, ...);

} // namespace limit_sliding

#endif
