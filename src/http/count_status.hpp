/* Copyright (C) the limit_sliding authors */

/* count_status: limits that are consumed after the response. */

#pragma once

#include "http/limit_set.hpp"
#include "http/parameter.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Sets the parameter of limit_sliding. */
bool set_count_status(const Param &param, Limit &limit);

/* The handler of the log phase, if any limit counts by status.  The request is
 * over, so whether the limit has room for it still makes no difference. */
ngx_int_t count_handler(ngx_http_request_t *r);

} // namespace limit_sliding
