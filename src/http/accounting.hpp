/*
 * Copyright (C) the limit_sliding authors
 */

/* Counters and offenders. */

#ifndef LIMIT_SLIDING_HTTP_ACCOUNTING_HPP
#define LIMIT_SLIDING_HTTP_ACCOUNTING_HPP

#include "http/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

void account(ngx_http_request_t *r, Context *ctx, ngx_uint_t first,
             ngx_uint_t rejected);
void add_offender(ngx_http_request_t *r, Claim *claim);
ngx_int_t own_limit(Claim *claim, Overrides *own);

} // namespace limit_sliding

#endif
