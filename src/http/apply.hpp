/*
 * Copyright (C) the limit_sliding authors
 */

/* Verdicts put in force. */

#ifndef LIMIT_SLIDING_HTTP_APPLY_HPP
#define LIMIT_SLIDING_HTTP_APPLY_HPP

#include "http/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t reject(ngx_http_request_t *r, LocConf *lscf, Context *ctx);
void would_reject(ngx_http_request_t *r, LocConf *lscf, Context *ctx);
void one_retry_after(ngx_http_request_t *r);

} // namespace limit_sliding

#endif
