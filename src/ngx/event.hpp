/* Copyright (C) the limit_sliding authors */

/* Events, timers, and a clock. */

#pragma once

#include <time.h>

#include <functional>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Returns the time of a monotonic clock in ns.  NGINX's clock has ms, and stands still while an
 * event is handled. */
inline uint64_t clock_ns() {
    timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

inline uint64_t clock_us() { return clock_ns() / 1000; }

/* Prepares a timer or posted event that calls a function or member function with the object. */
template <auto function, class T>
void init_event(ngx_event_t &event, T &object) {
    event.data = &object;
    event.log = ngx_cycle->log;
    event.handler = [](ngx_event_t *ev) { std::invoke(function, *static_cast<T *>(ev->data)); };
}

/* Queues the event to run after the present one.  An event that is posted twice runs once. */
inline void post_event(ngx_event_t &event) { ngx_post_event(&event, &ngx_posted_events); }

/* Cancels a posted event. */
inline void unpost_event(ngx_event_t &event) {
    if (event.posted) { ngx_delete_posted_event(&event); }
}

inline void stop_timer(ngx_event_t &timer) {
    if (timer.timer_set) { ngx_del_timer(&timer); }
}

/* Makes a timer fire in `ms`.  ngx_add_timer() keeps the time of a timer that is set if the times
 * differ by less than 300 ms. */
inline void restart_timer(ngx_event_t &timer, ngx_msec_t ms) {
    stop_timer(timer);
    ngx_add_timer(&timer, ms);
}

/* Extends deadlines checked late: a worker that was busy or stopped may have unread data. */
class Grace {
public:
    /* Sets the timer again and returns true, for two turns of the event loop after a deadline
     * that was first checked late.  NGINX's clock may lag by clock_age_ms. */
    bool is_given(ngx_event_t &timer, ngx_msec_t due_ms, ngx_msec_t clock_age_ms) {
        constexpr ngx_msec_t kLateMs = 10;
        constexpr unsigned kTurns = 2;
        if (due_ms != due_ms_) {
            due_ms_ = due_ms;
            turns_ = ngx_current_msec - due_ms > kLateMs + clock_age_ms ? kTurns : 0;
        }

        if (turns_ == 0) { return false; }

        turns_--;
        ngx_add_timer(&timer, 1);
        return true;
    }

private:
    ngx_msec_t due_ms_; /* last deadline, in ms of NGINX's clock */
    unsigned turns_;    /* turns of the event loop left for this deadline */
};

} // namespace limit_sliding
