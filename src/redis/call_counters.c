
/*
 * Copyright (C) the limit_sliding authors
 */


/* What is counted of calls: each reads the clock twice. */


#include "redis/node.h"

#include <time.h>


uint32_t  ngx_http_limit_sliding_latencies_us[] = {
    250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000
};


/* Of a clock that is monotonic; nginx's own has milliseconds. */

uint64_t
ngx_http_limit_sliding_redis_us(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}


/* A call that was answered. */

void
ngx_http_limit_sliding_redis_count(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_call_t *call)
{
    uint64_t    us;
    ngx_uint_t  i;

    us = ngx_http_limit_sliding_redis_us() - call->sent_us;

    i = 0;

    while (i < NGX_HTTP_LIMIT_SLIDING_NLATENCIES - 1
           && us > ngx_http_limit_sliding_latencies_us[i])
    {
        i++;
    }

    (void) ngx_atomic_fetch_add(&redis->traffic->latencies[i], 1);
    (void) ngx_atomic_fetch_add(&redis->traffic->sum_us, us);
}


void
ngx_http_limit_sliding_redis_traffic(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_traffic_t *sum)
{
    ngx_uint_t                         i, j;
    ngx_http_limit_sliding_traffic_t  *traffic;

    ngx_memzero(sum, sizeof(ngx_http_limit_sliding_traffic_t));

    for (i = 0; i < NGX_HTTP_LIMIT_SLIDING_NTRAFFIC; i++) {
        traffic = &redis->shared->traffic[i];

        sum->failed += traffic->failed;
        sum->opened += traffic->opened;
        sum->sum_us += traffic->sum_us;
        sum->leased += traffic->leased;

        for (j = 0; j < NGX_HTTP_LIMIT_SLIDING_NLATENCIES; j++) {
            sum->latencies[j] += traffic->latencies[j];
        }
    }
}
