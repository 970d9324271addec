/*
 * Copyright (C) the limit_sliding authors
 */

/* Limits of a request that Redis decides. */

#ifndef LIMIT_SLIDING_HTTP_REMOTE_CLAIMS_HPP
#define LIMIT_SLIDING_HTTP_REMOTE_CLAIMS_HPP

#include "http/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t add_remote(ngx_http_request_t *r, Claim *claim, RemoteZone *zone,
                     ngx_str_t *key);
ngx_int_t decide_remote(ngx_http_request_t *r, Context *ctx, ngx_uint_t n);
ngx_int_t conclude(Context *ctx);

} // namespace limit_sliding

#endif
