/* Copyright (C) the limit_sliding authors */

#pragma once

#include <functional>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Prepares a timer or a posted event that calls a function, or a member function, with the object.
 */
template <auto function, class T>
void init_event(ngx_event_t &event, T &object) {
    event.data = &object;
    event.log = ngx_cycle->log;
    event.handler = [](ngx_event_t *ev) { std::invoke(function, *static_cast<T *>(ev->data)); };
}

/* Lets the event be handled after the present one.  An event that is posted twice is handled once.
 */
inline void post_event(ngx_event_t &event) { ngx_post_event(&event, &ngx_posted_events); }

/* Cancels a posted event. */
inline void unpost_event(ngx_event_t &event) {
    if (event.posted) { ngx_delete_posted_event(&event); }
}

/* Extends deadlines that are checked late: if the worker was busy or stopped, it may not have read
 * data that arrived in time. */
class Grace {
public:
    /* Returns true, and sets the timer again, for two turns of the event loop after a deadline
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
    ngx_msec_t due_ms_; /* the last deadline */
    unsigned turns_;    /* turns left for this deadline */
};

} // namespace limit_sliding
