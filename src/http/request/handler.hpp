/* Copyright (C) the limit_sliding authors */

/* The handlers of the phases of a request. */

#pragma once

#include "http/conf/limit_set.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Runs the limits of a stage in this location.  NGINX's phases call the function instead of their
 * own checkers, which would double the cost for a request without limits. */
template <Stage kStage>
ngx_int_t check_stage(ngx_http_request_t *r, ngx_http_phase_handler_t *ph);

/* Handles the log phase, if any limit has "count_status=" or "settle=".  Charges the units of the
 * final cost that the request has not reserved, or refunds the reserved units beyond that cost.
 * The request is over, so it neither waits nor is rejected. */
ngx_int_t settle_handler(ngx_http_request_t *r);

} // namespace limit_sliding
