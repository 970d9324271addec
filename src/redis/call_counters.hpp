/*
 * Copyright (C) the limit_sliding authors
 */

/* What the workers count of their calls. */

#ifndef LIMIT_SLIDING_REDIS_CALL_COUNTERS_HPP
#define LIMIT_SLIDING_REDIS_CALL_COUNTERS_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

struct Redis;
struct Call;

/* The last one has no bound. */
constexpr auto kLatencies = 12;

/* Upper bounds, but for the last one. */
extern uint32_t latencies_us[];

/* What a worker counts of its calls. */
struct CallCounters {
    ngx_atomic_t failed;
    ngx_atomic_t opened; /* the breaker */
    ngx_atomic_t sum_us;
    ngx_atomic_t leased; /* requests, in advance */
    ngx_atomic_t latencies[kLatencies];
};

/* Adds up what all workers have counted. */
void redis_traffic(Redis *redis, CallCounters *sum);

/* A call was answered. */
void redis_count(Redis *redis, Call *call);

} // namespace limit_sliding

#endif
