/* Copyright (C) the limit_sliding authors */

/* Limits by costs that are known only when the response has ended. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Runs in the log phase, if any limit has "count_status=" or "settle=": charges the
 * final costs of requests, or refunds the units that they have reserved beyond these.
 * The request is over, so nothing waits, and nothing is rejected. */
ngx_int_t settle_handler(ngx_http_request_t *r);

} // namespace limit_sliding
