/*
 * Copyright (C) the limit_sliding authors
 */

/* The error log. */

#ifndef LIMIT_SLIDING_HTTP_LOG_HPP
#define LIMIT_SLIDING_HTTP_LOG_HPP

#include "http/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t init_log(ngx_conf_t *cf);
void log_rejected(ngx_http_request_t *r, LocConf *lscf, Context *ctx);
void log_delayed(ngx_http_request_t *r, LocConf *lscf, Claim *claim,
                 uint64_t now_ms);
void log_long_key(ngx_http_request_t *r, ZoneConf *zone, ngx_str_t key);
void log_bad_value(ngx_http_request_t *r, ZoneConf *zone, char *name,
                   ngx_str_t *value);

} // namespace limit_sliding

#endif
