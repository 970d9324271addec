/* Copyright (C) the limit_sliding authors */

/*
 * Suspends requests, and resumes them where they were.
 *
 * The wait of a request is its context of the module meanwhile.  NGINX clears the contexts
 * of a request that it redirects, and if the client leaves, it redirects the request to the
 * "post_action" of its location: the request lives on then, its cleanup has not run, and
 * the wait is over all the same.
 */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Suspends a request until somebody calls resume().  Until then, the handler is
 * called when the client can be written to.  Returns false if events fail. */
bool suspend(ngx_http_request_t *r, ngx_http_event_handler_pt write_handler, void *wait);

/* Suspends it for so long; returns the value that the handler of a phase is to return. */
ngx_int_t suspend_for(ngx_http_request_t *r, ngx_msec_t ms, void *wait);

/* Suspends one that is to be finalized once its wait is over; returns the value that the
 * handler of a content is to return. */
ngx_int_t suspend_content(ngx_http_request_t *r, void *wait);

/* Tells whether the request still waits with this. */
bool is_waiting(ngx_http_request_t *r, const void *wait);

/* Ends the wait, and returns it; nullptr: the request did not wait. */
void *end_wait(ngx_http_request_t *r);

/* Runs the phases on.  The request must not be touched after that. */
void resume(ngx_http_request_t *r);

} // namespace limit_sliding
