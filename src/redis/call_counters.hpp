/*
 * Copyright (C) the limit_sliding authors
 */

/* What the workers count of their calls; each call reads the clock twice. */

#ifndef LIMIT_SLIDING_REDIS_CALL_COUNTERS_HPP
#define LIMIT_SLIDING_REDIS_CALL_COUNTERS_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Upper bounds of the latencies, in microseconds; those of the last ones have
 * none. */
inline constexpr uint32_t kLatenciesUs[] = {
    250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000};

constexpr size_t kLatencies = sizeof(kLatenciesUs) / sizeof(uint32_t) + 1;

/* Of one worker; those of several numbers may share one. */
struct CallCounters {
    ngx_atomic_t failed;
    ngx_atomic_t opened; /* the breaker */
    ngx_atomic_t sum_us;
    ngx_atomic_t leased; /* requests, in advance */
    ngx_atomic_t latencies[kLatencies];
};

constexpr size_t kCallCounters = 64;

/* Counts a call that was answered, which was sent at this time of
 * clock_us(). */
void count_call(CallCounters &counters, uint64_t sent_us);

/* Adds up what all workers have counted. */
CallCounters sum_of(const CallCounters (&workers)[kCallCounters]);

} // namespace limit_sliding

#endif
