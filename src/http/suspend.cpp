/* Copyright (C) the limit_sliding authors */

#include "http/suspend.hpp"

#include "ngx/event.hpp"

namespace limit_sliding {
namespace {

void delayed_handler(ngx_http_request_t *r) {
    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0, "limit_sliding resume");

    ngx_event_t *wev = r->connection->write;
    if (!wev->delayed) {
        resume(r);
        return;
    }

    if (ngx_handle_write_event(wev, 0) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    }
}

} // namespace

bool suspend(ngx_http_request_t *r, ngx_http_event_handler_pt write_handler) {
    ngx_event_t *rev = r->connection->read;
    if (rev->ready) {
        post_event(*rev);
    } else if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        return false;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = write_handler;
    return true;
}

/* Only the timer, which belongs to the connection, and the client know the
 * request from here on, so there is nothing to undo when it is closed. */
ngx_int_t suspend_for(ngx_http_request_t *r, ngx_msec_t ms) {
    if (!suspend(r, delayed_handler)) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    ngx_event_t *wev = r->connection->write;

    wev->delayed = 1;
    ngx_add_timer(wev, ms);
    return NGX_AGAIN;
}

void resume(ngx_http_request_t *r) {
    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);
}

} // namespace limit_sliding
