/*
 * Copyright (C) the limit_sliding authors
 */

/* Requests held back. */

#ifndef LIMIT_SLIDING_HTTP_DELAY_HPP
#define LIMIT_SLIDING_HTTP_DELAY_HPP

#include "http/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_msec_t queue_delay_ms(ngx_http_request_t *r, LocConf *lscf, Context *ctx,
                          ngx_uint_t first);
ngx_int_t suspend(ngx_http_request_t *r, Context *ctx, ngx_msec_t delay);
void continue_request(ngx_http_request_t *r);

} // namespace limit_sliding

#endif
