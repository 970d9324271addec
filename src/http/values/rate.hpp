/* Copyright (C) the limit_sliding authors */

/* Rates and costs, as the configuration and requests give them. */

#pragma once

#include "core/policy/policy.hpp"
#include "core/policy/rate.hpp"
#include "http/values/expression.hpp"
#include "http/values/parameter.hpp"
#include "ngx/conf.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Sets `variable` if there is a variable in the parameter, else `rate`, and its `window`
 * if it has one, and `variable` to nullptr.  Logs an error, and returns false. */
bool set_rate(const Param &param, Expression *&variable, Rate &rate, Window &window);

/* Sets `limit` to the requests of the rate in a window, 1 .. limit_max.  If it is out of
 * bounds, logs an error that names `word` and `where`, and returns false. */
bool set_limit(ngx_conf_t *cf, const ngx_str_t &word, const Rate &rate, uint64_t window_ms,
               uint64_t limit_max, uint64_t &limit, const FileLine &where);

/* Set `limit` to the rate of a request, or `cost`; false, and they stay as they
 * are: the text is invalid, or the number too large.  A cost above all limits
 * is as good as one that is just above them. */
bool parse_rate(const ngx_str_t &text, uint64_t window_ms, uint64_t limit_max, uint64_t &limit);
bool parse_cost(const ngx_str_t &text, uint64_t &cost);

/* The same for a cost that is settled, 0 .. kSettledMax. */
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
