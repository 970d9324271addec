/*
 * Copyright (C) the limit_sliding authors
 */

/* Requests that wait for an ask. */

#ifndef LIMIT_SLIDING_REDIS_WAITERS_HPP
#define LIMIT_SLIDING_REDIS_WAITERS_HPP

#include "redis/remote_claim.hpp"

namespace limit_sliding {

struct Ask;
struct CrossSlot;

enum class Told {
    kFailed = 0,
    kTold /* claims have their outcomes */
};

/* Who waits for an ask: a request.  Memory and claims are its own. */
struct Waiter {
    ngx_queue_t queue;   /* of the ask */
    ngx_queue_t waiting; /* of the Redis */
    Ask *ask;            /* NULL: waits no more */
    CrossSlot *split;    /* waits for several asks; NULL: does not */
    ngx_msec_t until;
    ngx_uint_t turn;    /* of the ask's units */
    unsigned asked : 1; /* by a call under way */

    Claim *claims; /* as many as the ask's */
    Told told;
    ngx_uint_t admitted;

    ngx_event_t event; /* posted once told */
};

/* The request is gone; its charge stays.  Safe to call at any time. */
void leave_ask(Waiter *waiter);

void join_ask(Redis *redis, Ask *ask, Waiter *waiter);
void tell_waiter(Waiter *waiter, Told told);
void fail_waiters(ngx_queue_t *waiters);
void deadline_handler(ngx_event_t *ev);

} // namespace limit_sliding

#endif
