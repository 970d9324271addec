/* Copyright (C) the limit_sliding authors */

/* Suggestions for invalid values of the configuration.  Each function returns the end of an error
 * that has quoted the value, such as `, did you mean "1m"?`, in memory of the pool.  The text is
 * empty if there is no suggestion. */

#pragma once

#include <string_view>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Times: "5min", "100MS", "hour". */
ngx_str_t suggested_time(ngx_pool_t *pool, std::string_view text);

/* Windows of zones, times or calendar windows: "1M", "months". */
ngx_str_t suggested_window(ngx_pool_t *pool, std::string_view text);

/* Sizes of zones: "10MB", "1g". */
ngx_str_t suggested_size(ngx_pool_t *pool, std::string_view text);

/* Rates: "100/s", "100rpm", "100r/hour", "100r/month". */
ngx_str_t suggested_rate(ngx_pool_t *pool, std::string_view text);

} // namespace limit_sliding
