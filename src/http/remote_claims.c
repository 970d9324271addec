
/*
 * Copyright (C) the limit_sliding authors
 */


/*
 * Groups with limits that Redis decides: a request is suspended until they are
 * told, and goes on where it was.
 */


#include "http/http.h"


static ngx_int_t ngx_http_limit_sliding_leased(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t nlocal, ngx_uint_t nremote);
static ngx_http_limit_sliding_wait_t *ngx_http_limit_sliding_get_wait(
    ngx_http_request_t *r, ngx_http_limit_sliding_ctx_t *ctx,
    ngx_uint_t nlocal, ngx_uint_t nremote);
static ngx_int_t ngx_http_limit_sliding_await(ngx_http_request_t *r,
    ngx_http_limit_sliding_wait_t *wait);
static void ngx_http_limit_sliding_await_handler(ngx_http_request_t *r);
static void ngx_http_limit_sliding_await_cleanup(void *data);
static void ngx_http_limit_sliding_told_handler(ngx_event_t *ev);


/* Makes a claim one of Redis. */

ngx_int_t
ngx_http_limit_sliding_add_remote(ngx_http_request_t *r,
    limit_sliding_claim_t *claim, ngx_http_limit_sliding_remote_zone_t *zone,
    ngx_str_t *key)
{
    ngx_http_limit_sliding_remote_t  *remote;

    remote = ngx_palloc(r->pool, sizeof(ngx_http_limit_sliding_remote_t));
    if (remote == NULL) {
        return NGX_ERROR;
    }

    remote->zone = zone;
    remote->key = *key;
    remote->source = NGX_HTTP_LIMIT_SLIDING_REDIS;
    remote->own = LIMIT_SLIDING_OWN_NONE;

    claim->remote = remote;

    return NGX_OK;
}


/*
 * Decides n claims of which the last ones are for one Redis.  NGX_AGAIN: it was
 * asked; ngx_http_limit_sliding_conclude() goes on once it has answered.
 */

ngx_int_t
ngx_http_limit_sliding_decide_remote(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t n)
{
    size_t                          i;
    ngx_int_t                       rc;
    ngx_uint_t                      nlocal, nremote;
    limit_sliding_claim_t          *claims;
    ngx_http_limit_sliding_wait_t  *wait;

    claims = &ctx->claims[ctx->nclaims];

    nlocal = 0;

    while (claims[nlocal].remote == NULL) {
        nlocal++;
    }

    nremote = n - nlocal;

    if (ngx_http_limit_sliding_lease(claims + nlocal, nremote)) {
        return ngx_http_limit_sliding_leased(r, ctx, nlocal, nremote);
    }

    rc = ngx_http_limit_sliding_refuse(r, ctx, nlocal, nremote);

    if (rc != NGX_OK) {
        return rc;
    }

    wait = ngx_http_limit_sliding_get_wait(r, ctx, nlocal, nremote);
    if (wait == NULL) {
        return NGX_ERROR;
    }

    if (nlocal) {
        i = limit_sliding_acquire(claims, nlocal, ctx->now_ms);

        if (claims[i].outcome != LIMIT_SLIDING_ADMITTED) {
            return ngx_http_limit_sliding_refuse_local(r, ctx, nlocal,
                                                       nremote);
        }
    }

    rc = ngx_http_limit_sliding_ask(wait->redis, wait->waiter.claims, nremote,
                                    &wait->waiter);

    if (rc == NGX_OK) {
        return ngx_http_limit_sliding_await(r, wait);
    }

    return ngx_http_limit_sliding_fall_back(ctx, wait);
}


/* Claims in Redis are admitted: those of our own memory decide. */

static ngx_int_t
ngx_http_limit_sliding_leased(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t nlocal, ngx_uint_t nremote)
{
    size_t                  i;
    limit_sliding_claim_t  *claims, *remotes;

    claims = &ctx->claims[ctx->nclaims];
    remotes = claims + nlocal;

    if (nlocal) {
        i = limit_sliding_acquire(claims, nlocal, ctx->now_ms);

        if (claims[i].outcome != LIMIT_SLIDING_ADMITTED) {
            ngx_http_limit_sliding_lease_return(remotes, nremote);
            return ngx_http_limit_sliding_refuse_local(r, ctx, nlocal,
                                                       nremote);
        }
    }

    /* the limits in force are known by now */

    ngx_http_limit_sliding_lease_tell(remotes, nremote);
    ngx_http_limit_sliding_keep_warm(remotes, nremote, ctx->now_ms);

    i = limit_sliding_describing(claims, nlocal + nremote, ctx->now_ms);

    return ngx_http_limit_sliding_decided(ctx, nlocal + nremote, &claims[i]);
}


/* What is for a request that has to wait, and for its next waits. */

static ngx_http_limit_sliding_wait_t *
ngx_http_limit_sliding_get_wait(ngx_http_request_t *r,
    ngx_http_limit_sliding_ctx_t *ctx, ngx_uint_t nlocal, ngx_uint_t nremote)
{
    limit_sliding_claim_t            *remotes;
    ngx_http_limit_sliding_wait_t    *wait;
    ngx_http_limit_sliding_remote_t  *remote;

    if (ctx->wait == NULL) {
        ctx->wait = ngx_pcalloc(r->pool,
                                sizeof(ngx_http_limit_sliding_wait_t));
        if (ctx->wait == NULL) {
            return NULL;
        }
    }

    wait = ctx->wait;
    remotes = &ctx->claims[ctx->nclaims + nlocal];
    remote = remotes->remote;

    wait->redis = remote->zone->redis;
    wait->nlocal = nlocal;
    wait->nremote = nremote;
    wait->waiter.claims = remotes;

    return wait;
}


/* As a delayed request is, but for the timer, which is our Redis's. */

static ngx_int_t
ngx_http_limit_sliding_await(ngx_http_request_t *r,
    ngx_http_limit_sliding_wait_t *wait)
{
    ngx_event_t         *rev;
    ngx_http_cleanup_t  *cln;

    if (wait->request == NULL) {
        cln = ngx_http_cleanup_add(r, 0);
        if (cln == NULL) {
            ngx_http_limit_sliding_leave(&wait->waiter);
            return NGX_ERROR;
        }

        cln->handler = ngx_http_limit_sliding_await_cleanup;
        cln->data = wait;

        wait->request = r;
        wait->waiter.event.handler = ngx_http_limit_sliding_told_handler;
        wait->waiter.event.data = wait;
        wait->waiter.event.log = ngx_cycle->log;
    }

    rev = r->connection->read;

    if (rev->ready) {
        ngx_post_event(rev, &ngx_posted_events);

    } else if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        ngx_http_limit_sliding_leave(&wait->waiter);
        return NGX_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_limit_sliding_await_handler;

    return NGX_AGAIN;
}


static void
ngx_http_limit_sliding_await_handler(ngx_http_request_t *r)
{
    ngx_http_limit_sliding_wait_t  *wait;

    if (ngx_handle_write_event(r->connection->write, 0) == NGX_OK) {
        return;
    }

    /* an error page may have limits of its own, and wait for them anew */

    wait = ngx_http_limit_sliding_get_ctx(r)->wait;

    ngx_http_limit_sliding_leave(&wait->waiter);
    wait->group = NULL;

    ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
}


static void
ngx_http_limit_sliding_await_cleanup(void *data)
{
    ngx_http_limit_sliding_wait_t  *wait = data;

    ngx_http_limit_sliding_leave(&wait->waiter);
}


/* Posted.  Nothing of the request may be touched once it has run. */

static void
ngx_http_limit_sliding_told_handler(ngx_event_t *ev)
{
    ngx_http_limit_sliding_wait_t  *wait = ev->data;

    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = wait->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, c->log, 0, "limit_sliding told");

    ngx_http_limit_sliding_go_on(r);

    ngx_http_run_posted_requests(c);
}


/* The Redis has answered, or has not: the rest of decide_remote(). */

ngx_int_t
ngx_http_limit_sliding_conclude(ngx_http_limit_sliding_ctx_t *ctx)
{
    size_t                          i;
    ngx_uint_t                      n;
    limit_sliding_claim_t          *claims;
    ngx_http_limit_sliding_wait_t  *wait;

    wait = ctx->wait;

    if (wait->waiter.told == NGX_HTTP_LIMIT_SLIDING_FAILED) {
        return ngx_http_limit_sliding_fall_back(ctx, wait);
    }

    claims = &ctx->claims[ctx->nclaims];
    n = wait->nlocal + wait->nremote;

    if (wait->waiter.admitted) {
        ngx_http_limit_sliding_keep_warm(wait->waiter.claims, wait->nremote,
                                         ngx_current_msec);
    } else {
        limit_sliding_release(claims, wait->nlocal, ngx_current_msec);
    }

    i = limit_sliding_describing(claims, n, ctx->now_ms);

    return ngx_http_limit_sliding_decided(ctx, n, &claims[i]);
}
