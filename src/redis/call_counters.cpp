
/*
 * Copyright (C) the limit_sliding authors
 */

/* What is counted of calls: each reads the clock twice. */

#include "redis/call_counters.hpp"
#include "ngx/ngx.hpp"
#include "redis/redis.hpp"

namespace limit_sliding {

uint32_t latencies_us[] = {250,   500,   1000,   2500,   5000,   10000,
                           25000, 50000, 100000, 250000, 1000000};

/* A call that was answered. */

void redis_count(Redis *redis, Call *call)
{
    uint64_t us;
    ngx_uint_t i;

    us = clock_us() - call->sent_us;

    i = 0;

    while (i < kLatencies - 1 && us > latencies_us[i]) {
        i++;
    }

    (void)ngx_atomic_fetch_add(&redis->client.traffic->latencies[i], 1);
    (void)ngx_atomic_fetch_add(&redis->client.traffic->sum_us, us);
}

void redis_traffic(Redis *redis, CallCounters *sum)
{
    ngx_uint_t i, j;
    CallCounters *traffic;

    ngx_memzero(sum, sizeof(CallCounters));

    for (i = 0; i < kCallCounters; i++) {
        traffic = &redis->shared->traffic[i];

        sum->failed += traffic->failed;
        sum->opened += traffic->opened;
        sum->sum_us += traffic->sum_us;
        sum->leased += traffic->leased;

        for (j = 0; j < kLatencies; j++) {
            sum->latencies[j] += traffic->latencies[j];
        }
    }
}

} // namespace limit_sliding
