/* Copyright (C) the limit_sliding authors */

/* Rates and costs in the configuration and in requests. */

#pragma once

#include "core/policy/policy.hpp"
#include "core/policy/rate.hpp"
#include "http/values/expression.hpp"
#include "http/values/parameter.hpp"
#include "ngx/conf.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Sets `variable` if the parameter has variables.  Else sets `variable` to nullptr, `rate`, and
 * `window` if the rate has one.  Logs an error and returns false if the rate is invalid. */
bool set_rate(const Param &param, Expression *&variable, Rate &rate, Window &window);

/* Sets `variable` if "inflight=" has variables, else `limit`.  Logs an error and returns false if
 * the number is invalid. */
bool set_inflight(const Param &param, Expression *&variable, uint64_t &limit);

/* Sets `limit` to the requests that the rate allows in a window.  If `limit` is not within 1 ..
 * limit_max, logs an error that quotes `word` and ends with `where`, and returns false. */
bool set_limit(ngx_conf_t *cf, const ngx_str_t &word, const Rate &rate, uint64_t window_ms,
               uint64_t limit_max, uint64_t &limit, const FileLine &where);

/* Parse the rate or the cost of a request.  Return false, and leave the result alone, if the text
 * is invalid or the limit is not within 1 .. limit_max.  A cost above kRemoteMax, which exceeds
 * all limits, becomes kRemoteMax + 1. */
bool parse_rate(const ngx_str_t &text, uint64_t window_ms, uint64_t limit_max, uint64_t &limit);
bool parse_cost(const ngx_str_t &text, uint64_t &cost);

/* Parses the final cost of a request, 0 .. kSettledMax.  Returns false for other texts. */
inline bool parse_settled(const ngx_str_t &text, uint64_t &cost) {
    if (text.len == 0) { return false; }

    uint64_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        const uint64_t digit = text.data[i] - uint64_t{'0'};
        n = n * 10 + digit;
        if (digit > 9 || n > kSettledMax) { return false; }
    }

    cost = n;
    return true;
}

} // namespace limit_sliding
