/* Copyright (C) the limit_sliding authors */

#pragma once

#include <functional>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Prepares a timer, or an event to be posted, that calls a function with the
 * object, or a member function of it. */
template <auto function, class T>
void init_event(ngx_event_t &event, T &object) {
    event.data = &object;
    event.log = ngx_cycle->log;
    event.handler = [](ngx_event_t *ev) { std::invoke(function, *static_cast<T *>(ev->data)); };
}

/* Has the event handled once what is under way is done; one that is posted already is
 * handled once. */
inline void post_event(ngx_event_t &event) { ngx_post_event(&event, &ngx_posted_events); }

/* Has the event not be handled after all, if it is posted. */
inline void unpost_event(ngx_event_t &event) {
    if (event.posted) { ngx_delete_posted_event(&event); }
}

} // namespace limit_sliding
