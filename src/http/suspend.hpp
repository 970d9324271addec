/*
 * Copyright (C) the limit_sliding authors
 */

/* Requests that are held back, and go on with the phase that they were in. */

#ifndef LIMIT_SLIDING_HTTP_SUSPEND_HPP
#define LIMIT_SLIDING_HTTP_SUSPEND_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

/*
 * Suspends a request until somebody calls resume().  The handler is called
 * meanwhile when its client can be written to.  False: events are broken.
 */
bool suspend(ngx_http_request_t *r, ngx_http_event_handler_pt write_handler);

/* Suspends it for so long; returns what the handler of a phase is to return. */
ngx_int_t suspend_for(ngx_http_request_t *r, ngx_msec_t ms);

/* Runs the phases on.  The request must not be touched after that. */
void resume(ngx_http_request_t *r);

} // namespace limit_sliding

#endif
