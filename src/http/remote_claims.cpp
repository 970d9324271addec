
/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * Groups with limits that Redis decides: a request is suspended until they are
 * told, and goes on where it was.
 */

#include "http/remote_claims.hpp"

#include "http/context.hpp"
#include "http/delay.hpp"
#include "http/fallback.hpp"
#include "http/handler.hpp"
#include "http/refusal.hpp"

namespace limit_sliding {

static ngx_int_t decide_by_leases(ngx_http_request_t *r, Context *ctx,
                                  ngx_uint_t nlocal, ngx_uint_t nremote);
static RemoteWait *get_wait(ngx_http_request_t *r, Context *ctx,
                            ngx_uint_t nlocal, ngx_uint_t nremote);
static ngx_int_t await(ngx_http_request_t *r, RemoteWait *wait);
static void await_handler(ngx_http_request_t *r);
static void await_cleanup(void *data);
static void told_handler(ngx_event_t *ev);

/* Makes a claim one of Redis. */

ngx_int_t add_remote(ngx_http_request_t *r, Claim *claim, RemoteZone *zone,
                     ngx_str_t *key)
{
    RemoteClaim *remote;

    remote = ngx_palloc(r->pool, sizeof(RemoteClaim));
    if (remote == NULL) {
        return NGX_ERROR;
    }

    remote->zone = zone;
    remote->key = *key;
    remote->source = Source::kRedis;
    remote->own = kOwnNone;

    claim->remote = remote;

    return NGX_OK;
}

/*
 * Decides n claims of which the last ones are for one Redis.  NGX_AGAIN: it was
 * asked; conclude() goes on once it has answered.
 */

ngx_int_t decide_remote(ngx_http_request_t *r, Context *ctx, ngx_uint_t n)
{
    size_t i;
    ngx_int_t rc;
    ngx_uint_t nlocal, nremote;
    Claim *claims;
    RemoteWait *wait;

    claims = &ctx->claims[ctx->nclaims];

    nlocal = 0;

    while (claims[nlocal].remote == NULL) {
        nlocal++;
    }

    nremote = n - nlocal;

    if (spend_leases(claims + nlocal, nremote)) {
        return decide_by_leases(r, ctx, nlocal, nremote);
    }

    rc = refuse(r, ctx, nlocal, nremote);

    if (rc != NGX_OK) {
        return rc;
    }

    wait = get_wait(r, ctx, nlocal, nremote);
    if (wait == NULL) {
        return NGX_ERROR;
    }

    if (nlocal) {
        i = limit_sliding::acquire(claims, nlocal, ctx->now_ms);

        if (claims[i].outcome != Outcome::kAdmitted) {
            return refuse_local(r, ctx, nlocal, nremote);
        }
    }

    rc = ask_redis(wait->redis, wait->waiter.claims, nremote, &wait->waiter);

    if (rc == NGX_OK) {
        return await(r, wait);
    }

    return fall_back(ctx, wait);
}

/* Claims in Redis are admitted: those of our own memory decide. */

static ngx_int_t decide_by_leases(ngx_http_request_t *r, Context *ctx,
                                  ngx_uint_t nlocal, ngx_uint_t nremote)
{
    size_t i;
    Claim *claims, *remotes;

    claims = &ctx->claims[ctx->nclaims];
    remotes = claims + nlocal;

    if (nlocal) {
        i = limit_sliding::acquire(claims, nlocal, ctx->now_ms);

        if (claims[i].outcome != Outcome::kAdmitted) {
            return_leases(remotes, nremote);
            return refuse_local(r, ctx, nlocal, nremote);
        }
    }

    /* the limits in force are known by now */

    describe_leases(remotes, nremote);
    keep_warm(remotes, nremote, ctx->now_ms);

    i = limit_sliding::describing(claims, nlocal + nremote, ctx->now_ms);

    return decided(ctx, nlocal + nremote, &claims[i]);
}

/* What is for a request that has to wait, and for its next waits. */

static RemoteWait *get_wait(ngx_http_request_t *r, Context *ctx,
                            ngx_uint_t nlocal, ngx_uint_t nremote)
{
    Claim *remotes;
    RemoteWait *wait;
    RemoteClaim *remote;

    if (ctx->wait == NULL) {
        ctx->wait = ngx_pcalloc(r->pool, sizeof(RemoteWait));
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

static ngx_int_t await(ngx_http_request_t *r, RemoteWait *wait)
{
    ngx_event_t *rev;
    ngx_http_cleanup_t *cln;

    if (wait->request == NULL) {
        cln = ngx_http_cleanup_add(r, 0);
        if (cln == NULL) {
            leave_ask(&wait->waiter);
            return NGX_ERROR;
        }

        cln->handler = await_cleanup;
        cln->data = wait;

        wait->request = r;
        wait->waiter.event.handler = told_handler;
        wait->waiter.event.data = wait;
        wait->waiter.event.log = ngx_cycle->log;
    }

    rev = r->connection->read;

    if (rev->ready) {
        ngx_post_event(rev, &ngx_posted_events);

    } else if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        leave_ask(&wait->waiter);
        return NGX_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = await_handler;

    return NGX_AGAIN;
}

static void await_handler(ngx_http_request_t *r)
{
    RemoteWait *wait;

    if (ngx_handle_write_event(r->connection->write, 0) == NGX_OK) {
        return;
    }

    /* an error page may have limits of its own, and wait for them anew */

    wait = get_ctx(r)->wait;

    leave_ask(&wait->waiter);
    wait->group = NULL;

    ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
}

static void await_cleanup(void *data)
{
    RemoteWait *wait = data;

    leave_ask(&wait->waiter);
}

/* Posted.  Nothing of the request may be touched once it has run. */

static void told_handler(ngx_event_t *ev)
{
    RemoteWait *wait = ev->data;

    ngx_connection_t *c;
    ngx_http_request_t *r;

    r = wait->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, c->log, 0, "limit_sliding told");

    continue_request(r);

    ngx_http_run_posted_requests(c);
}

/* The Redis has answered, or has not: the rest of decide_remote(). */

ngx_int_t conclude(Context *ctx)
{
    size_t i;
    ngx_uint_t n;
    Claim *claims;
    RemoteWait *wait;

    wait = ctx->wait;

    if (wait->waiter.told == Told::kFailed) {
        return fall_back(ctx, wait);
    }

    claims = &ctx->claims[ctx->nclaims];
    n = wait->nlocal + wait->nremote;

    if (wait->waiter.admitted) {
        keep_warm(wait->waiter.claims, wait->nremote, ngx_current_msec);
    } else {
        limit_sliding::release(claims, wait->nlocal, ngx_current_msec);
    }

    i = limit_sliding::describing(claims, n, ctx->now_ms);

    return decided(ctx, n, &claims[i]);
}

} // namespace limit_sliding
