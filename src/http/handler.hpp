/*
 * Copyright (C) the limit_sliding authors
 */

/* The handlers of phases. */

#ifndef LIMIT_SLIDING_HTTP_HANDLER_HPP
#define LIMIT_SLIDING_HTTP_HANDLER_HPP

#include "http/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t access_handler(ngx_http_request_t *r);
ngx_int_t after_auth_handler(ngx_http_request_t *r);

ngx_int_t decided(Context *ctx, ngx_uint_t n, Claim *claim);

} // namespace limit_sliding

#endif
