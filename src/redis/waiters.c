
/*
 * Copyright (C) the limit_sliding authors
 */


/* Requests that wait for an ask: all equally long, so in order of arrival. */


#include "redis/cluster.h"


static void ngx_http_limit_sliding_time_out(
    ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_waiter_t *waiter);
static void ngx_http_limit_sliding_unlink(
    ngx_http_limit_sliding_waiter_t *waiter);


void
ngx_http_limit_sliding_join(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_ask_t *ask, ngx_http_limit_sliding_waiter_t *waiter)
{
    if (ask->units == 0 && !ask->in_call) {
        ngx_http_limit_sliding_make_due(ask,
                         ngx_http_limit_sliding_route(redis, ask->slot));
    }

    if (waiter) {
        waiter->ask = ask;
        waiter->asked = 0;
        waiter->until = ngx_current_msec + redis->timeout;

        ngx_queue_insert_tail(&ask->waiters, &waiter->queue);
        ngx_queue_insert_tail(&redis->waiting, &waiter->waiting);

        redis->deadline.cancelable = 0;

        if (!redis->deadline.timer_set) {
            ngx_add_timer(&redis->deadline, redis->timeout);
        }
    }

    ask->units++;
}


void
ngx_http_limit_sliding_fail_waiters(ngx_queue_t *waiters)
{
    ngx_queue_t                      *q;
    ngx_http_limit_sliding_waiter_t  *waiter;

    while (!ngx_queue_empty(waiters)) {
        q = ngx_queue_head(waiters);
        waiter = ngx_queue_data(q, ngx_http_limit_sliding_waiter_t, queue);

        ngx_http_limit_sliding_tell(waiter, NGX_HTTP_LIMIT_SLIDING_FAILED);
    }
}


/* The request goes on once we are done. */

void
ngx_http_limit_sliding_tell(ngx_http_limit_sliding_waiter_t *waiter,
    ngx_http_limit_sliding_told_e told)
{
    waiter->told = told;

    ngx_http_limit_sliding_unlink(waiter);

    ngx_post_event(&waiter->event, &ngx_posted_events);
}


/* The timer of the first who waits; all wait equally long. */

void
ngx_http_limit_sliding_deadline(ngx_event_t *ev)
{
    ngx_http_limit_sliding_redis_t  *redis = ev->data;

    ngx_queue_t                      *q;
    ngx_msec_int_t                    left;
    ngx_http_limit_sliding_waiter_t  *waiter;

    while (!ngx_queue_empty(&redis->waiting)) {
        q = ngx_queue_head(&redis->waiting);
        waiter = ngx_queue_data(q, ngx_http_limit_sliding_waiter_t, waiting);

        left = (ngx_msec_int_t) (waiter->until - ngx_current_msec);

        if (left > 0) {
            ngx_add_timer(ev, (ngx_msec_t) left);
            return;
        }

        ngx_http_limit_sliding_time_out(redis, waiter);
    }
}


/* What was not asked yet will not be: it is decided otherwise. */

static void
ngx_http_limit_sliding_time_out(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_waiter_t *waiter)
{
    ngx_http_limit_sliding_ask_t  *ask;

    ask = waiter->ask;

    if (ask->to->state != NGX_HTTP_LIMIT_SLIDING_READY
        && (ngx_msec_int_t) (waiter->until - redis->timeout
                             - redis->failed) >= 0)
    {
        /* not one of many that wait for the same attempt to connect */
        ngx_http_limit_sliding_redis_failed(ask->to);
    }

    if (!waiter->asked) {
        ask->units--;
    }

    ngx_http_limit_sliding_tell(waiter, NGX_HTTP_LIMIT_SLIDING_FAILED);

    if (ask->units == 0 && !ask->in_call) {
        ngx_queue_remove(&ask->queue);
        ask->to->ndue--;
        ngx_http_limit_sliding_ask_done(redis, ask);
    }
}


void
ngx_http_limit_sliding_leave(ngx_http_limit_sliding_waiter_t *waiter)
{
    if (waiter->ask) {
        ngx_http_limit_sliding_unlink(waiter);
    }

    if (waiter->split) {
        ngx_http_limit_sliding_split_leave(waiter);
    }

    if (waiter->event.posted) {
        ngx_delete_posted_event(&waiter->event);
    }
}


/* A worker that exits waits for the timer as long as anyone else does. */

static void
ngx_http_limit_sliding_unlink(ngx_http_limit_sliding_waiter_t *waiter)
{
    ngx_http_limit_sliding_redis_t  *redis;

    redis = waiter->ask->redis;

    ngx_queue_remove(&waiter->queue);
    ngx_queue_remove(&waiter->waiting);
    waiter->ask = NULL;

    if (ngx_queue_empty(&redis->waiting)) {
        redis->deadline.cancelable = 1;
    }
}
