/* Copyright (C) the limit_sliding authors */

/* The handlers of the phases of a request. */

#pragma once

#include "http/conf/limit_set.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Runs the limits of a stage that a place has.  NGINX's phases call it in place of
 * their own checkers, which alone would cost a request without limits as much
 * again. */
template <Stage kStage>
ngx_int_t check_stage(ngx_http_request_t *r, ngx_http_phase_handler_t *ph);

} // namespace limit_sliding
