/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/call_counters.hpp"

#include "redis/pipeline.hpp"

namespace limit_sliding {

void count_call(CallCounters &counters, uint64_t sent_us)
{
    uint64_t us = clock_us() - sent_us;
    size_t i = 0;

    while (i < kLatencies - 1 && us > kLatenciesUs[i]) {
        i++;
    }

    (void)ngx_atomic_fetch_add(&counters.latencies[i], 1);
    (void)ngx_atomic_fetch_add(&counters.sum_us, us);
}

CallCounters sum_of(const CallCounters (&workers)[kCallCounters])
{
    CallCounters sum{};

    for (const CallCounters &worker : workers) {
        sum.failed += worker.failed;
        sum.opened += worker.opened;
        sum.sum_us += worker.sum_us;
        sum.leased += worker.leased;

        for (size_t i = 0; i < kLatencies; i++) {
            sum.latencies[i] += worker.latencies[i];
        }
    }

    return sum;
}

} // namespace limit_sliding
