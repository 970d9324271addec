/*
 * Copyright (C) the limit_sliding authors
 */

#include <atomic>
#include <cstdint>

#include "core/atomics.hpp"
#include "redis/logic/remote.hpp"

namespace limit_sliding {

/*
 * Two words, each valid whatever the other: how many calls have failed in a
 * row, and when the next probe is due.  Whoever moves the latter forward sends
 * it; if he dies, the next one is due an interval later all the same.
 */

BreakerState breaker_check(Breaker *breaker, uint64_t now_ms)
{
    if (shared(&breaker->failures).load(std::memory_order_relaxed)
        < kBreakerFailures) {
        return BreakerState::kClosed;
    }

    uint64_t due = shared(&breaker->probe_ms).load(std::memory_order_relaxed);

    if (now_ms < due) {
        return BreakerState::kOpen;
    }

    return shared(&breaker->probe_ms)
                   .compare_exchange_strong(due, now_ms + kBreakerIntervalMs)
               ? BreakerState::kProbe
               : BreakerState::kOpen;
}

uint64_t breaker_probe_ms(const Breaker *breaker)
{
    return load(&breaker->probe_ms);
}

int breaker_is_open(const Breaker *breaker)
{
    return load(&breaker->failures) >= kBreakerFailures;
}

int breaker_succeeded(Breaker *breaker)
{
    std::atomic<uint64_t> &failures = shared(&breaker->failures);

    if (failures.load(std::memory_order_relaxed) == 0) {
        return 0;
    }

    return failures.exchange(0) >= kBreakerFailures;
}

int breaker_failed(Breaker *breaker, uint64_t now_ms, uint32_t random)
{
    constexpr uint64_t kSpread = kBreakerIntervalMs / 4;

    uint64_t due = now_ms + kBreakerIntervalMs - random % (kSpread + 1);

    /* first, so that whoever finds it open does not find a probe overdue */
    shared(&breaker->probe_ms).store(due);

    return shared(&breaker->failures).fetch_add(1) + 1 == kBreakerFailures;
}

} // namespace limit_sliding
