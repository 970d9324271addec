/* Copyright (C) the limit_sliding authors */

#include "redis/shared/breaker.hpp"

namespace limit_sliding {

BreakerState Breaker::check(uint64_t now_ms) {
    if (!is_open()) { return BreakerState::kClosed; }

    uint64_t due = load(&probe_ms_);
    const bool is_ours
        = now_ms >= due
          && shared(&probe_ms_).compare_exchange_strong(due, now_ms + kBreakerIntervalMs);
    return is_ours ? BreakerState::kProbe : BreakerState::kOpen;
}

bool Breaker::failed(uint64_t now_ms, uint32_t random) {
    constexpr uint64_t kSpread = kBreakerIntervalMs / 4;
    const uint64_t due = now_ms + kBreakerIntervalMs - random % (kSpread + 1);
    /* set first, so that no worker finds the breaker open with an overdue probe */
    shared(&probe_ms_).store(due);
    const bool opens = shared(&failures_).fetch_add(1) + 1 == kBreakerFailures;
    if (opens) { shared(&opened_ms_).store(now_ms); }
    return opens;
}

} // namespace limit_sliding
