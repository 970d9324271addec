
/*
 * Copyright (C) the limit_sliding authors
 */

/* Requests that wait for an ask: all equally long, so in order of arrival. */

#include "redis/waiters.hpp"
#include "ngx/ngx.hpp"
#include "redis/batch.hpp"
#include "redis/cross_slot.hpp"
#include "redis/deliver.hpp"

namespace limit_sliding {

static void time_out(Redis *redis, Waiter *waiter);
static void unlink(Waiter *waiter);

void join_ask(Redis *redis, Ask *ask, Waiter *waiter)
{
    if (ask->units == 0 && !ask->in_call) {
        make_due(ask, redis->client.nodes.route(ask->slot));
    }

    if (waiter) {
        waiter->ask = ask;
        waiter->asked = 0;
        waiter->until = ngx_current_msec + redis->settings.timeout;

        ngx_queue_insert_tail(&ask->waiters, &waiter->queue);
        ngx_queue_insert_tail(&redis->client.waiting, &waiter->waiting);

        redis->client.deadline.cancelable = 0;

        if (!redis->client.deadline.timer_set) {
            ngx_add_timer(&redis->client.deadline, redis->settings.timeout);
        }
    }

    ask->units++;
}

void fail_waiters(ngx_queue_t *waiters)
{
    ngx_queue_t *q;
    Waiter *waiter;

    while (!ngx_queue_empty(waiters)) {
        q = ngx_queue_head(waiters);
        waiter = ngx_queue_data(q, Waiter, queue);

        tell_waiter(waiter, Told::kFailed);
    }
}

/* The request goes on once we are done. */

void tell_waiter(Waiter *waiter, Told told)
{
    waiter->told = told;

    unlink(waiter);

    ngx_post_event(&waiter->event, &ngx_posted_events);
}

/* The timer of the first who waits; all wait equally long. */

void deadline_handler(ngx_event_t *ev)
{
    Redis *redis = ev->data;

    ngx_queue_t *q;
    ngx_msec_int_t left;
    Waiter *waiter;

    while (!ngx_queue_empty(&redis->client.waiting)) {
        q = ngx_queue_head(&redis->client.waiting);
        waiter = ngx_queue_data(q, Waiter, waiting);

        left = (ngx_msec_int_t)(waiter->until - ngx_current_msec);

        if (left > 0) {
            ngx_add_timer(ev, (ngx_msec_t)left);
            return;
        }

        time_out(redis, waiter);
    }
}

/* What was not asked yet will not be: it is decided otherwise. */

static void time_out(Redis *redis, Waiter *waiter)
{
    Ask *ask;

    ask = waiter->ask;

    if (!ask->to->is_ready()
        && (ngx_msec_int_t)(waiter->until - redis->settings.timeout
                            - redis->client.failed)
               >= 0) {
        /* not one of many that wait for the same attempt to connect */
        redis_failed(*ask->to);
    }

    if (!waiter->asked) {
        ask->units--;
    }

    tell_waiter(waiter, Told::kFailed);

    if (ask->units == 0 && !ask->in_call) {
        ngx_queue_remove(&ask->queue);
        ask->to->ndue--;
        ask_done(redis, ask);
    }
}

void leave_ask(Waiter *waiter)
{
    if (waiter->ask) {
        unlink(waiter);
    }

    if (waiter->split) {
        split_leave(waiter);
    }

    if (waiter->event.posted) {
        ngx_delete_posted_event(&waiter->event);
    }
}

/* A worker that exits waits for the timer as long as anyone else does. */

static void unlink(Waiter *waiter)
{
    Redis *redis;

    redis = waiter->ask->redis;

    ngx_queue_remove(&waiter->queue);
    ngx_queue_remove(&waiter->waiting);
    waiter->ask = NULL;

    if (ngx_queue_empty(&redis->client.waiting)) {
        redis->client.deadline.cancelable = 1;
    }
}

} // namespace limit_sliding
