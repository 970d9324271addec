/* Copyright (C) the limit_sliding authors */

/* Rates and costs that depend on the request. */

#pragma once

#include "http/limit_set.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Completes the claim of a limit with `evaluated` set, whose rate, cost or time
 * of counting is not that of a plain one.  NGX_DECLINED: the request is not
 * limited. */
ngx_int_t evaluate_claim(ngx_http_request_t *r, Limit *limit, Claim *claim);

} // namespace limit_sliding
