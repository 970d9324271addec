/*
 * Copyright (C) the limit_sliding authors
 */

/* Who waits for an answer of Redis. */

#ifndef LIMIT_SLIDING_REDIS_WAITER_HPP
#define LIMIT_SLIDING_REDIS_WAITER_HPP

#include "ngx/list.hpp"
#include "redis/remote_claim.hpp"

namespace limit_sliding {

struct Ask;

enum class Told {
    kFailed = 0,
    kTold /* claims have their outcomes */
};

/* A request, or a part of one.  Memory and claims are its own; zeroed it waits
 * for nothing. */
struct Waiter {
    Claim *claims;     /* as many as the ask's */
    ngx_event_t event; /* its handler is called once it is told */

    /* what it was told */
    Told told;
    ngx_uint_t admitted;

    ngx_queue_t link;    /* of the ask */
    ngx_queue_t waiting; /* of the client */
    Ask *ask;            /* NULL: waits no more */
    Waiter **part;       /* who waits for it in parts has it here, and is to
                            find NULL there if it leaves; NULL: nobody */
    ngx_msec_t until;
    ngx_uint_t turn; /* its place among the ask's units */
    bool asked;      /* by a call under way */
};

using WaiterList = List<Waiter, &Waiter::link>;
using WaitingList = List<Waiter, &Waiter::waiting>;

} // namespace limit_sliding

#endif
