/*
 * Copyright (C) the limit_sliding authors
 */

#include <atomic>
#include <cstdint>

#include "redis/logic/remote.h"
#include "core/atomics.hpp"

using limit_sliding::load;
using limit_sliding::shared;

/*
 * Two words, each valid whatever the other: how many calls have failed in a
 * row, and when the next probe is due.  Whoever moves the latter forward sends
 * it; if he dies, the next one is due an interval later all the same.
 */

limit_sliding_breaker_state_t limit_sliding_breaker_check(
    limit_sliding_breaker_t *breaker, uint64_t now_ms)
{
    if (shared(&breaker->failures).load(std::memory_order_relaxed)
        < LIMIT_SLIDING_BREAKER_FAILURES) {
        return LIMIT_SLIDING_BREAKER_CLOSED;
    }

    uint64_t due = shared(&breaker->probe_ms).load(std::memory_order_relaxed);

    if (now_ms < due) {
        return LIMIT_SLIDING_BREAKER_OPEN;
    }

    return shared(&breaker->probe_ms)
                   .compare_exchange_strong(
                       due, now_ms + LIMIT_SLIDING_BREAKER_INTERVAL_MS)
               ? LIMIT_SLIDING_BREAKER_PROBE
               : LIMIT_SLIDING_BREAKER_OPEN;
}

uint64_t limit_sliding_breaker_probe_ms(const limit_sliding_breaker_t *breaker)
{
    return load(&breaker->probe_ms);
}

int limit_sliding_breaker_is_open(const limit_sliding_breaker_t *breaker)
{
    return load(&breaker->failures) >= LIMIT_SLIDING_BREAKER_FAILURES;
}

int limit_sliding_breaker_succeeded(limit_sliding_breaker_t *breaker)
{
    std::atomic<uint64_t> &failures = shared(&breaker->failures);

    if (failures.load(std::memory_order_relaxed) == 0) {
        return 0;
    }

    return failures.exchange(0) >= LIMIT_SLIDING_BREAKER_FAILURES;
}

int limit_sliding_breaker_failed(limit_sliding_breaker_t *breaker,
                                 uint64_t now_ms, uint32_t random)
{
    constexpr uint64_t kSpread = LIMIT_SLIDING_BREAKER_INTERVAL_MS / 4;

    uint64_t due
        = now_ms + LIMIT_SLIDING_BREAKER_INTERVAL_MS - random % (kSpread + 1);

    /* first, so that whoever finds it open does not find a probe overdue */
    shared(&breaker->probe_ms).store(due);

    return shared(&breaker->failures).fetch_add(1) + 1
           == LIMIT_SLIDING_BREAKER_FAILURES;
}
