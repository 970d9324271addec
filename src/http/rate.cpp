/* Copyright (C) the limit_sliding authors */

#include "http/rate.hpp"

#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

bool is_limit(uint64_t n) { return n >= 1 && n <= kLimitMax; }

} // namespace

bool set_rate(const Param &param, Expression *&variable, Rate &rate) {
    variable = nullptr;
    if (has_variables(param.text)) {
        variable = create_expression(param.cf, param.text);
        return variable != nullptr;
    }

    if (!rate.parse(param.value())) {
        return param.invalid("invalid rate \"%V\", it must be a positive integer, with "
                             "\"r/s\", \"r/m\", \"r/h\", \"r/d\" or alone, or hold a variable");
    }

    return true;
}

bool set_limit(ngx_conf_t *cf, const ngx_str_t &word, const Rate &rate, uint64_t window_ms,
               uint32_t &limit, const FileLine &where) {
    uint64_t n = rate.limit(window_ms);
    if (!is_limit(n)) {
        return invalid_at(cf, where,
                          "\"%V\" allows %s%uL requests in a window of %uL ms, it must be "
                          "between 1 and %uD in %s:%ui",
                          &word, n == UINT64_MAX ? "more than " : "", n, window_ms, kLimitMax);
    }

    limit = static_cast<uint32_t>(n);
    return true;
}

bool parse_rate(const ngx_str_t &text, uint64_t window_ms, uint32_t &limit) {
    Rate rate;
    uint64_t n = rate.parse(view(text)) ? rate.limit(window_ms) : 0;
    limit = is_limit(n) ? static_cast<uint32_t>(n) : limit;
    return is_limit(n);
}

bool parse_cost(const ngx_str_t &text, uint32_t &cost) {
    ngx_int_t n = ngx_atoi(text.data, text.len);
    const bool is_cost = n != NGX_ERROR && n <= ngx_int_t{NGX_MAX_UINT32_VALUE};
    cost = is_cost ? static_cast<uint32_t>(n) : cost;
    return is_cost;
}

} // namespace limit_sliding
