/* Copyright (C) the limit_sliding authors */

/* The settlement of costs that are known only when the response has ended. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Handles the log phase, if any limit has "count_status=" or "settle=".  Charges the units of the
 * final cost that the request has not reserved, or refunds the reserved units beyond that cost.
 * The request is over, so it neither waits nor is rejected. */
ngx_int_t settle_handler(ngx_http_request_t *r);

} // namespace limit_sliding
