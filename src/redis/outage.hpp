/*
 * Copyright (C) the limit_sliding authors
 */

/* Whether a Redis answers, as its breaker counts it for all workers. */

#ifndef LIMIT_SLIDING_REDIS_OUTAGE_HPP
#define LIMIT_SLIDING_REDIS_OUTAGE_HPP

#include "redis/redis.hpp"

namespace limit_sliding {

/* The node has answered a call. */
void node_answered(Node &node);

/* The node has not, or with an error that is no verdict. */
void node_failed(Node &node);

} // namespace limit_sliding

#endif
