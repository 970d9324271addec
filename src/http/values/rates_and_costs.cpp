/* Copyright (C) the limit_sliding authors */

#include "http/values/rates_and_costs.hpp"

#include <algorithm>

#include "http/values/suggestion.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

bool set_rate(const Param &param, Expression *&variable, Rate &rate, Window &window) {
    variable = nullptr;
    if (has_variables(param.text)) { return create_expression(param.cf, param.text, variable); }

    if (!rate.parse(param.value(), &window)) {
        const auto meant = suggested_rate(param.cf->pool, param.value());
        return param.invalid("invalid rate \"%V\", it must be a positive integer, with "
                             "\"r/s\", \"r/m\", \"r/h\", \"r/d\", a window from 100ms to 30d as "
                             "\"/15m\", or alone, or hold a variable%V",
                             &meant);
    }

    param.warn_of_months(30); /* the longest window */
    return true;
}

bool set_inflight(const Param &param, Expression *&variable, uint64_t &limit) {
    return has_variables(param.text) ? create_expression(param.cf, param.text, variable)
                                     : param.get_number("number", 1, kNarrowMax, limit);
}

bool set_limit(ngx_conf_t *cf, const ngx_str_t &word, const Rate &rate, uint64_t window_ms,
               uint64_t limit_max, uint64_t &limit, const FileLine &where) {
    uint64_t n = rate.limit(window_ms);
    if (n < 1 || n > limit_max) {
        return invalid_at(cf, where,
                          "\"%V\" allows %s%uL requests in a window of %uL ms, it must be "
                          "between 1 and %uL in %s:%ui",
                          &word, n == UINT64_MAX ? "more than " : "", n, window_ms, limit_max);
    }

    limit = n;
    return true;
}

bool parse_rate(const ngx_str_t &text, uint64_t window_ms, uint64_t limit_max, uint64_t &limit) {
    Rate rate;
    uint64_t n = rate.parse(view(text)) ? rate.limit(window_ms) : 0;
    const bool is_limit = n >= 1 && n <= limit_max;
    limit = is_limit ? n : limit;
    return is_limit;
}

bool parse_cost(const ngx_str_t &text, uint64_t &cost) {
    ngx_int_t n = ngx_atoi(text.data, text.len);
    if (n == NGX_ERROR) { return false; }

    cost = std::min<uint64_t>(n, kRemoteMax + 1);
    return true;
}

} // namespace limit_sliding
