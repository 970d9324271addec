/*
 * Copyright (C) the limit_sliding authors
 */

/* Requests that wait for an ask: all equally long, so in order of arrival. */

#ifndef LIMIT_SLIDING_REDIS_WAITERS_HPP
#define LIMIT_SLIDING_REDIS_WAITERS_HPP

#include "redis/ask.hpp"

namespace limit_sliding {

/* Adds a unit to the ask, which becomes due; the waiter, if there is one, will
 * be told. */
void join_ask(Ask &ask, Waiter *waiter);

/* Ends the wait: the request goes on in this turn of the event loop, but after
 * the caller is done. */
void tell_waiter(Waiter &waiter, Told told);

void fail_waiters(WaiterList &waiters);

/* The handler of the client's timer, which is that of who waits longest. */
void deadline_handler(ngx_event_t *ev);

/* The request is gone; its charge stays.  Safe to call at any time. */
void leave_ask(Waiter *waiter);

} // namespace limit_sliding

#endif
