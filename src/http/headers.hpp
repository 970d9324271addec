/*
 * Copyright (C) the limit_sliding authors
 */

/* Header fields of responses. */

#ifndef LIMIT_SLIDING_HTTP_HEADERS_HPP
#define LIMIT_SLIDING_HTTP_HEADERS_HPP

#include "http/limit_set.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

void init_headers(void);
ngx_int_t push_header(ngx_http_request_t *r, char *name, size_t len,
                      ngx_str_t *value);

} // namespace limit_sliding

#endif
