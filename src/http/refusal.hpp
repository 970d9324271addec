/*
 * Copyright (C) the limit_sliding authors
 */

/* Refusals that are known without asking Redis. */

#ifndef LIMIT_SLIDING_HTTP_REFUSAL_HPP
#define LIMIT_SLIDING_HTTP_REFUSAL_HPP

#include "http/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t refuse(ngx_http_request_t *r, Context *ctx, ngx_uint_t nlocal,
                 ngx_uint_t nremote);
ngx_int_t refuse_local(ngx_http_request_t *r, Context *ctx, ngx_uint_t nlocal,
                       ngx_uint_t nremote);

} // namespace limit_sliding

#endif
