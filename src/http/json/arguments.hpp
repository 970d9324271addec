/* Copyright (C) the limit_sliding authors */

/* Arguments of API requests, and errors about them.  The functions return NGX_DECLINED if the
 * argument is valid.  Else they send an error that quotes the argument, and return the result for
 * the handler of the location. */

#pragma once

#include "core/policy/override.hpp"
#include "http/conf/zone_conf.hpp"
#include "ngx/ngx.hpp"
#include "redis/protocol/scan_position.hpp"

namespace limit_sliding {

/* Reads a key of the zone, in the form that keys of requests have. */
ngx_int_t read_key_arg(ngx_http_request_t *r, const ZoneConf &zone, ngx_str_t *key);

/* The override that a key gets. */
struct RateArgs {
    ngx_str_t text; /* the limit as given */
    Override own;   /* not set: "default" */
    time_t ttl_s;   /* lifetime in s; 0: unlimited */
};

ngx_int_t read_rate_args(ngx_http_request_t *r, const ZoneConf &zone, RateArgs *rate);

/* The units that are charged by hand. */
struct ChargeArgs {
    int64_t cost; /* units, from 1 to 2^53; or to be refunded, from -2^53 to -1 */
    bool takes;   /* "take=1": they are charged only if the limit has room */
};

ngx_int_t read_charge_args(ngx_http_request_t *r, ChargeArgs *charge);

/* Reads the target of DELETE.  Sets *is_ban if only the ban of the key is deleted. */
ngx_int_t read_what_arg(ngx_http_request_t *r, const ZoneConf &zone, bool *is_ban);

/* The requested page of a list. */
struct PageArgs {
    ngx_str_t after; /* last key of the page before, as in requests; empty: `place` is used */
    uint64_t place;  /* place in the table where the page begins */
    size_t n;        /* maximum number of entries */
};

ngx_int_t read_page_args(ngx_http_request_t *r, const ZoneConf &zone, PageArgs *page);

/* Reads the requested page of a list in Redis: its position, and the maximum number of entries. */
ngx_int_t read_scan_args(ngx_http_request_t *r, ScanPosition *from, size_t *n);

} // namespace limit_sliding
