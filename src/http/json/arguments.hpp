/* Copyright (C) the limit_sliding authors */

/*
 * Arguments of requests to the API, and the errors about them.
 *
 * A function that reads one returns NGX_DECLINED if it is valid.  Else it has sent an
 * error that quotes it, and returns the value that the handler of the location is to return.
 */

#pragma once

#include <string_view>

#include "core/policy/override.hpp"
#include "http/conf/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Texts are as they were before they were encoded for the request line. */

/* Reads a key of the zone into the form that requests have. */
ngx_int_t read_key_arg(ngx_http_request_t *r, const ZoneConf &zone, ngx_str_t *key);

/* A limit that a key is given. */
struct RateArgs {
    ngx_str_t text; /* as given */
    Override own;   /* none set: "default" */
    time_t ttl_s;   /* until it ends; 0: it does not */
};

ngx_int_t read_rate_args(ngx_http_request_t *r, const ZoneConf &zone, RateArgs *rate);

/* Reads "5" or "-5"; 0 and numbers above 2^53 are no costs. */
ngx_int_t read_cost_arg(ngx_http_request_t *r, int64_t *cost);

/* Reads the object of DELETE: *is_ban tells whether it is the key's ban only. */
ngx_int_t read_what_arg(ngx_http_request_t *r, const ZoneConf &zone, bool *is_ban);

/* A page of a list. */
struct PageArgs {
    ngx_str_t after; /* the last key before it, as requests have it; or empty: */
    uint64_t place;  /* where in the table it begins */
    size_t n;        /* of entries at most */
};

ngx_int_t read_page_args(ngx_http_request_t *r, const ZoneConf &zone, PageArgs *page);

} // namespace limit_sliding
