/* Copyright (C) the limit_sliding authors */

#include "http/request/suspend.hpp"

#include "http/module.h"
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

/* Makes `wait` the context of the request.  The request ends if the client leaves, except in a
 * "post_action", which runs after the response. */
void set_wait(ngx_http_request_t *r, void *wait) {
    r->read_event_handler = r->post_action ? ngx_http_block_reading : ngx_http_test_reading;
    ngx_http_set_ctx(r, wait, ngx_http_limit_sliding_module);
}

} // namespace

bool suspend(ngx_http_request_t *r, ngx_http_event_handler_pt write_handler, void *wait) {
    ngx_event_t *rev = r->connection->read;
    if (rev->ready) {
        post_event(*rev);
    } else if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        return false;
    }

    r->write_event_handler = write_handler;
    set_wait(r, wait);
    return true;
}

/* Only the timer of the connection refers to the request during the delay, and NGINX deletes that
 * timer with the connection, so a closed request leaves nothing to undo. */
ngx_int_t suspend_for(ngx_http_request_t *r, ngx_msec_t ms, void *wait) {
    if (!suspend(r, delayed_handler, wait)) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    ngx_event_t *wev = r->connection->write;

    wev->delayed = 1;
    ngx_add_timer(wev, ms);
    return NGX_AGAIN;
}

ngx_int_t suspend_content(ngx_http_request_t *r, void *wait, ngx_http_cleanup_pt leave) {
    ngx_http_cleanup_t *cln = ngx_http_cleanup_add(r, 0);
    if (cln == nullptr) {
        leave(wait);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln->handler = leave;
    cln->data = wait;
    r->main->count++;
    r->write_event_handler = ngx_http_request_empty_handler;
    set_wait(r, wait);
    return NGX_DONE;
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
