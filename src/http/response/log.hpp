/* Copyright (C) the limit_sliding authors */

/* Lines of the error log about requests. */

#pragma once

#include <string_view>

#include "http/conf/configuration.hpp"
#include "http/response/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Registers the property of omitted lines in Angie.  Called before http{} is read. */
ngx_int_t init_log(ngx_conf_t *cf);

/* Returns true if error_log has lines of this level; level 0 is off. */
inline bool is_logged(ngx_http_request_t *r, ngx_uint_t level) {
    return level != 0 && r->connection->log->log_level >= level;
}

/* Log a rejected or delayed request.  log_rejected() is only called if is_logged(). */
void log_rejected(ngx_http_request_t *r, const LocConf &conf, const Claim &claim,
                  const Verdict &verdict);
void log_delayed(ngx_http_request_t *r, const LocConf &conf, const Claim &claim, uint64_t now_ms);

/* Counts an invalid value of a request, and logs it.  `name` is "rate", "cost" or "settle". */
void log_bad_value(ngx_http_request_t *r, ZoneConf &zone, const char *name, const ngx_str_t &value);

/* Logs an invalid value behind the name of limit_sliding_usage, cut if is_clipped. */
void log_bad_usage(ngx_http_request_t *r, std::string_view name, std::string_view value,
                   bool is_clipped);

/* Logs that responses lack the name, once a minute for each pace. */
void log_missing_usage(ngx_http_request_t *r, std::string_view name, LogPace &pace);

} // namespace limit_sliding
