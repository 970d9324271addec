/*
 * Copyright (C) the limit_sliding authors
 */

/* The API's JSON. */

#ifndef LIMIT_SLIDING_HTTP_API_JSON_HPP
#define LIMIT_SLIDING_HTTP_API_JSON_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t api_json(ngx_http_request_t *r);

} // namespace limit_sliding

#endif
