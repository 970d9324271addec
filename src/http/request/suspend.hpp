/* Copyright (C) the limit_sliding authors */

/*
 * Suspends requests, and resumes them where they were.
 *
 * A suspended request has its wait as the module's context.  NGINX clears the contexts when it
 * redirects a request.  If the client leaves, NGINX may redirect the request to the "post_action"
 * of the location: the wait has ended then, although the cleanup handlers have not run.
 */

#pragma once

#include "http/module.h"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Suspends a request until resume().  NGINX calls the handler meanwhile if the connection becomes
 * writable.  Returns false if an event cannot be added. */
bool suspend(ngx_http_request_t *r, ngx_http_event_handler_pt write_handler, void *wait);

/* Suspends a request for a time.  Returns NGX_AGAIN, or the status of an error. */
ngx_int_t suspend_for(ngx_http_request_t *r, ngx_msec_t ms, void *wait);

/* Suspends a request in its content handler until answer() finalizes it.  `leave` is called with
 * `wait` when the request is freed, or at once if there is no memory.  Returns the value that the
 * content handler must return: NGX_DONE, or the status of an error. */
ngx_int_t suspend_content(ngx_http_request_t *r, void *wait, ngx_http_cleanup_pt leave);

/* Returns true if the request is still suspended with this wait. */
inline bool is_waiting(ngx_http_request_t *r, const void *wait) {
    return ngx_http_get_module_ctx(r, ngx_http_limit_sliding_module) == wait;
}

/* Ends the wait, and returns it; returns nullptr if the request was not suspended. */
inline void *end_wait(ngx_http_request_t *r) {
    auto *wait = ngx_http_get_module_ctx(r, ngx_http_limit_sliding_module);
    ngx_http_set_ctx(r, nullptr, ngx_http_limit_sliding_module);
    return wait;
}

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
