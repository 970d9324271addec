/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/waiters.hpp"

#include "redis/outage.hpp"

namespace limit_sliding {

namespace {

void unlink(Waiter &waiter)
{
    Client &client = waiter.ask->redis->client;

    WaiterList::remove(waiter);
    WaitingList::remove(waiter);
    waiter.ask = nullptr;

    if (client.waiting.empty()) {
        /* a worker that exits need not wait for the timer */
        client.deadline.cancelable = 1;
    }
}

/* What was not asked yet will not be: it is decided otherwise. */
void time_out(Waiter &waiter)
{
    Ask &ask = *waiter.ask;
    const Redis &redis = *ask.redis;
    ngx_msec_t since = waiter.until - redis.settings.timeout;

    if (!ask.to->is_ready()
        && static_cast<ngx_msec_int_t>(since - redis.client.failed) >= 0) {
        /* not one of many that wait for the same attempt to connect */
        node_failed(*ask.to);
    }

    if (!waiter.asked) {
        ask.units--;
    }

    tell_waiter(waiter, Told::kFailed);

    if (ask.units == 0 && !ask.in_call) {
        remove_due(ask);
        ask_done(ask);
    }
}

} // namespace

void join_ask(Ask &ask, Waiter *waiter)
{
    Redis &redis = *ask.redis;
    Client &client = redis.client;

    if (ask.units == 0 && !ask.in_call) {
        make_due(ask);
    }

    if (waiter) {
        waiter->ask = &ask;
        waiter->asked = false;
        waiter->until = ngx_current_msec + redis.settings.timeout;

        ask.waiters.push_back(*waiter);
        client.waiting.push_back(*waiter);

        client.deadline.cancelable = 0;

        if (!client.deadline.timer_set) {
            ngx_add_timer(&client.deadline, redis.settings.timeout);
        }
    }

    ask.units++;
}

void tell_waiter(Waiter &waiter, Told told)
{
    waiter.told = told;

    unlink(waiter);

    ngx_post_event(&waiter.event, &ngx_posted_events);
}

void fail_waiters(WaiterList &waiters)
{
    while (!waiters.empty()) {
        tell_waiter(waiters.front(), Told::kFailed);
    }
}

void deadline_handler(ngx_event_t *ev)
{
    auto *redis = static_cast<Redis *>(ev->data);

    while (!redis->client.waiting.empty()) {
        Waiter &waiter = redis->client.waiting.front();
        auto left
            = static_cast<ngx_msec_int_t>(waiter.until - ngx_current_msec);

        if (left > 0) {
            ngx_add_timer(ev, static_cast<ngx_msec_t>(left));
            return;
        }

        time_out(waiter);
    }
}

void leave_ask(Waiter *waiter)
{
    if (waiter->ask) {
        unlink(*waiter);
    }

    if (waiter->part) {
        *waiter->part = nullptr;
        waiter->part = nullptr;
    }

    if (waiter->event.posted) {
        ngx_delete_posted_event(&waiter->event);
    }
}

} // namespace limit_sliding
