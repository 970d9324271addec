/* Copyright (C) the limit_sliding authors */

/* Suggestions for a wrong value of the configuration.  Each
 * function returns the end of a message that has quoted it, as
 * `, did you mean "1m"?`, in memory of the pool; empty: there is no such guess. */

#pragma once

#include <string_view>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Times: "5min", "100MS", "hour". */
ngx_str_t suggested_time(ngx_pool_t *pool, std::string_view text);

/* Windows of zones, which are times or of the calendar: "1M", "months". */
ngx_str_t suggested_window(ngx_pool_t *pool, std::string_view text);

/* Sizes of zones: "10MB", "1g". */
ngx_str_t suggested_size(ngx_pool_t *pool, std::string_view text);

/* Rates: "100/s", "100rpm", "100r/hour", "100r/month". */
ngx_str_t suggested_rate(ngx_pool_t *pool, std::string_view text);

} // namespace limit_sliding
