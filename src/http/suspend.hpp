/* Copyright (C) the limit_sliding authors */

/* Holds requests back, and lets them go on in the phase that they were in. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Suspends a request until somebody calls resume().  Until then, the handler is
 * called when the client can be written to.  Returns false if events fail. */
bool suspend(ngx_http_request_t *r, ngx_http_event_handler_pt write_handler);

/* Suspends it for so long; returns what the handler of a phase is to return. */
ngx_int_t suspend_for(ngx_http_request_t *r, ngx_msec_t ms);

/* Runs the phases on.  The request must not be touched after that. */
void resume(ngx_http_request_t *r);

} // namespace limit_sliding
