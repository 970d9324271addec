/*
 * Copyright (C) the limit_sliding authors
 */

/* What was decided for a request. */

#ifndef LIMIT_SLIDING_HTTP_CONTEXT_HPP
#define LIMIT_SLIDING_HTTP_CONTEXT_HPP

#include "http/configuration.hpp"
#include "ngx/ngx.hpp"
#include "redis/client.hpp"

namespace limit_sliding {

/* In this order: of several limits of a request the last one prevails. */

enum class Status {
    kPassed = 0,
    kDelayedDryRun,
    kDelayed,
    kRejectedDryRun,
    kRejected
};

/* A request that waits for a Redis, and what it goes on with. */

struct RemoteWait {
    Waiter waiter;
    ngx_http_request_t *request; /* NULL: never waited */
    Redis *redis;
    ngx_uint_t nlocal;
    ngx_uint_t nremote;
    Group *group; /* NULL: does not wait */
    ngx_msec_t delay;
};

/*
 * What was decided for a request: every limit once, however often the request
 * is redirected.  It outlives r->ctx in a cleanup record of the request's
 * pool.  A claim's data is its Limit, its remote an
 * RemoteClaim, or NULL in a zone of one node.
 */

struct Context {
    ngx_pool_cleanup_t cleanup;
    Status status;
    uint32_t waiting;   /* suspended, to be resumed */
    ngx_uint_t nclaims; /* 0: nothing accounted, and
                                                    the rest is not set */
    ngx_uint_t headers; /* where it was decided */
    uint64_t now_ms;
    RemoteWait *wait; /* NULL: none so far */
    Claim *described;
    Claim claims[1];
};

/* Where a call would cost as much as what it does. */

#define inline inline __attribute__((always_inline))

Context *find_ctx(ngx_http_request_t *r);
Context *extend_ctx(ngx_http_request_t *r, Context *octx, ngx_uint_t nclaims);
ngx_uint_t is_decided(Context *ctx, ZoneConf *zone);
void context_cleanup(void *data);

/* Nothing is lost where two workers share counters, see take_counters(). */

static ngx_inline void tally(ZoneConf *zone, Count count)
{
    ngx_atomic_t *counter;

    counter = (ngx_atomic_t *)&zone->worker.counters->requests[count];

    (void)ngx_atomic_fetch_add(counter, 1);
}

/* NULL: nothing was decided for the request yet. */

static ngx_inline Context *get_ctx(ngx_http_request_t *r)
{
    Context *ctx;

    r = r->main;

    ctx = ngx_http_get_module_ctx(r, ngx_http_limit_sliding_module);

    if (ctx == NULL && (r->internal || r->filter_finalize)) {
        return find_ctx(r);
    }

    return ctx;
}

static ngx_inline Context *create_ctx(ngx_http_request_t *r, ngx_uint_t nclaims)
{
    Context *ctx;

    ctx = ngx_palloc(r->pool,
                     offsetof(Context, claims) + nclaims * sizeof(Claim));
    if (ctx == NULL) {
        return NULL;
    }

    /* as ngx_pool_cleanup_add() does, in one allocation */

    ctx->cleanup.handler = context_cleanup;
    ctx->cleanup.data = ctx;
    ctx->cleanup.next = r->pool->cleanup;
    r->pool->cleanup = &ctx->cleanup;

    ctx->status = Status::kPassed;
    ctx->waiting = 0;
    ctx->nclaims = 0;
    ctx->wait = NULL;

    ngx_http_set_ctx(r, ctx, ngx_http_limit_sliding_module);

    return ctx;
}

} // namespace limit_sliding

#endif
