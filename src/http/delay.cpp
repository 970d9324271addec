
/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/delay.hpp"

#include "http/configuration.hpp"
#include "http/context.hpp"
#include "http/limit_set.hpp"
#include "http/log.hpp"

namespace limit_sliding {

static void resume_handler(ngx_http_request_t *r);

/*
 * How long the admitted claims from `first` on hold the request back: the
 * longest of their delays, which is logged.  All are enforced or all watched.
 */

ngx_msec_t queue_delay_ms(ngx_http_request_t *r, LocConf *lscf, Context *ctx,
                          ngx_uint_t first)
{
    uint64_t ms, longest_ms;
    ngx_uint_t i;
    Claim *longest;
    Limit *limit;
    Status status;

    longest = NULL;
    longest_ms = 0;

    for (i = first; i < ctx->nclaims; i++) {
        ms = limit_sliding::claim_delay_ms(&ctx->claims[i], ctx->now_ms);

        if (ms > longest_ms) {
            longest = &ctx->claims[i];
            longest_ms = ms;
        }
    }

    if (longest == NULL) {
        return 0;
    }

    limit = longest->data;

    status = limit->dry_run ? Status::kDelayedDryRun : Status::kDelayed;

    if (ctx->status < status) {
        ctx->status = status;
    }

    log_delayed(r, lscf, longest, ctx->now_ms);

    return longest_ms;
}

/*
 * From here on nothing but the timer, which belongs to the connection, and the
 * client know of the request; when it is closed there is nothing to undo.  Its
 * charge stays.
 */

ngx_int_t suspend(ngx_http_request_t *r, Context *ctx, ngx_msec_t delay)
{
    ngx_event_t *rev, *wev;

    rev = r->connection->read;
    wev = r->connection->write;

    if (rev->ready) {
        ngx_post_event(rev, &ngx_posted_events);

    } else if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->waiting = 1;

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = resume_handler;

    wev->delayed = 1;
    ngx_add_timer(wev, delay);

    return NGX_AGAIN;
}

/* Runs the phases from our handler on, which finds that it has waited. */

static void resume_handler(ngx_http_request_t *r)
{
    ngx_event_t *wev;

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "limit_sliding resume");

    wev = r->connection->write;

    if (wev->delayed) {

        if (ngx_handle_write_event(wev, 0) != NGX_OK) {
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        }

        return;
    }

    continue_request(r);
}

/* With the phase that it was suspended in. */

void continue_request(ngx_http_request_t *r)
{
    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);
}

} // namespace limit_sliding
