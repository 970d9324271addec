/* Copyright (C) the limit_sliding authors */

/* Lines of the error log about requests. */

#pragma once

#include <string_view>

#include "http/conf/configuration.hpp"
#include "http/response/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Called before the configuration of http{} is read. */
ngx_int_t init_log(ngx_conf_t *cf);

/* Tells whether error_log has lines of this level; 0 is none. */
inline bool is_logged(ngx_http_request_t *r, ngx_uint_t level) {
    return level != 0 && r->connection->log->log_level >= level;
}

/* Called if is_logged(). */
void log_rejected(ngx_http_request_t *r, const LocConf &conf, const Claim &claim,
                  const Verdict &verdict);
void log_delayed(ngx_http_request_t *r, const LocConf &conf, const Claim &claim, uint64_t now_ms);

/* Counts an error of the zone, and logs it.  `name` is "rate", "cost" or "settle". */
void log_bad_value(ngx_http_request_t *r, ZoneConf &zone, const char *name, const ngx_str_t &value);

/* Logs what a response has after the name of limit_sliding_usage; is_clipped
 * tells that the value is longer. */
void log_bad_usage(ngx_http_request_t *r, std::string_view name, std::string_view value,
                   bool is_clipped);

} // namespace limit_sliding
