/*
 * Copyright (C) the limit_sliding authors
 */

/* Commands under way over one connection. */

#ifndef LIMIT_SLIDING_REDIS_PIPELINE_HPP
#define LIMIT_SLIDING_REDIS_PIPELINE_HPP

#include "redis/reply.hpp"

namespace limit_sliding {

struct Node;
struct Call;

/* Is called once, without a reply if the call failed on the way.  Frees the
 * call. */
typedef void (*ReplyHandler)(Node &node, Call &call, Reply *reply);

/* A command under way.  Larger ones derive from it. */
struct Call {
    ngx_queue_t link; /* among those of the node */
    ngx_msec_t sent;
    uint64_t sent_us; /* of clock_us() */
    ReplyHandler handler;
    bool map; /* asks for the map of slots */
};

/* Returns the microseconds of a monotonic clock. */
uint64_t clock_us();

} // namespace limit_sliding

#endif
