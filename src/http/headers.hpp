/*
 * Copyright (C) the limit_sliding authors
 */

/* Header fields of responses. */

#ifndef LIMIT_SLIDING_HTTP_HEADERS_HPP
#define LIMIT_SLIDING_HTTP_HEADERS_HPP

#include "http/limit_set.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* A list member in a header, but for its name: with two numbers. */

constexpr auto kMember = sizeof(";q=;w=, ") + 2 * NGX_INT64_LEN;

void init_headers(void);
ngx_int_t push_header(ngx_http_request_t *r, char *name, size_t len,
                      ngx_str_t *value);
u_char *append_number(u_char *p, uint64_t n, ngx_str_t *text);
ngx_int_t init_fields(ngx_pool_t *pool, Limit *limit);

} // namespace limit_sliding

#endif
