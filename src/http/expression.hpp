/*
 * Copyright (C) the limit_sliding authors
 */

/* Values with variables in them. */

#ifndef LIMIT_SLIDING_HTTP_EXPRESSION_HPP
#define LIMIT_SLIDING_HTTP_EXPRESSION_HPP

#include "core/limiter.hpp"
#include "http/parameter.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* A character of a variable's name. */

#define is_word(ch)                                                            \
    (((ch) >= 'a' && (ch) <= 'z') || ((ch) >= 'A' && (ch) <= 'Z')              \
     || ((ch) >= '0' && (ch) <= '9') || (ch) == '_')

struct Limit;

/* Text, variables and their combination. */

struct Expression {
    ngx_http_complex_value_t complex;
    ngx_int_t index; /* of the variable that is
                                                    all of it, or NGX_ERROR */
};

char *compile_expression(ngx_conf_t *cf, ngx_str_t *text, Expression *value);
char *rate_value(ngx_conf_t *cf, Param *param, Expression **value, Rate *rate);
ngx_int_t rate_limit(ngx_conf_t *cf, ngx_str_t *word, Rate *rate,
                     uint64_t window_ms, uint32_t *limit, u_char *file,
                     ngx_uint_t line);
ngx_int_t parse_rate(ngx_str_t *text, uint64_t window_ms, uint32_t *limit);
ngx_int_t evaluate_claim(ngx_http_request_t *r, Limit *limit, Claim *claim);

} // namespace limit_sliding

#endif
