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

/* Suspends a request in its content handler until answer() finalizes it.  `leave` is called with
 * `wait` when the request is freed, or at once if there is no memory.  Returns the value that the
 * content handler must return: NGX_DONE, or the status of an error. */
ngx_int_t suspend_content(ngx_http_request_t *r, void *wait, ngx_http_cleanup_pt leave);

/* Tells whether the request still waits with this. */
bool is_waiting(ngx_http_request_t *r, const void *wait);

/* Ends the wait, and returns it; nullptr: the request did not wait. */
void *end_wait(ngx_http_request_t *r);

/* Continues the phases.  The request must not be touched afterwards. */
void resume(ngx_http_request_t *r);

/* Finalizes a request with the status that the function returns, unless the request has stopped
 * waiting, or the function returns NGX_AGAIN.  The request must not be touched afterwards. */
template <class Function>
void answer(ngx_http_request_t *r, const void *wait, Function function) {
    if (!is_waiting(r, wait)) { return; }

    ngx_connection_t *c = r->connection;
    ngx_http_set_log_request(c->log, r);

    const ngx_int_t rc = function();
    if (rc != NGX_AGAIN) { ngx_http_finalize_request(r, rc); }

    ngx_http_run_posted_requests(c);
}

} // namespace limit_sliding
