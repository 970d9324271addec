/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_REDIS_BREAKER_PROBE_HPP
#define LIMIT_SLIDING_REDIS_BREAKER_PROBE_HPP

#include "redis/redis.hpp"

namespace limit_sliding {

/*
 * Lets this worker look at the breaker by a timer, so that the first requests
 * after an outage are decided by Redis, however long none came.  Every worker
 * looks, as the breaker is in shared memory: whoever has opened it may be dead,
 * and a worker may be younger than the outage.  The breaker lets one of them
 * send a probe.
 */
void start_probes(Redis &redis);

} // namespace limit_sliding

#endif
