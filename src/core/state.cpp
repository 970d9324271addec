/*
 * Copyright (C) the limit_sliding authors
 */

/* One key's state, as pure functions. */

#include <algorithm>

#include "core/algorithm.hpp"
#include "core/limiter.h"

using limit_sliding::with_algorithm;

uint64_t limit_sliding_capacity(const limit_sliding_policy_t *policy,
                                uint32_t limit)
{
    return with_algorithm(*policy, 0, limit, [](const auto &algorithm) {
        return algorithm.capacity();
    });
}

int limit_sliding_admit(const limit_sliding_policy_t *policy,
                        limit_sliding_state_t state, uint64_t now_ms,
                        uint32_t limit, uint32_t cost,
                        limit_sliding_state_t *next)
{
    return with_algorithm(*policy, now_ms, limit, [&](const auto &algorithm) {
        return algorithm.admit(state, cost, next);
    });
}

limit_sliding_state_t limit_sliding_refund(const limit_sliding_policy_t *policy,
                                           limit_sliding_state_t state,
                                           uint64_t now_ms, uint32_t limit,
                                           limit_sliding_state_t recorded,
                                           uint32_t cost)
{
    return with_algorithm(*policy, now_ms, limit, [&](const auto &algorithm) {
        return algorithm.refund(state, recorded, cost);
    });
}

void limit_sliding_describe(const limit_sliding_policy_t *policy,
                            limit_sliding_state_t state, uint64_t now_ms,
                            uint32_t limit, uint32_t cost,
                            limit_sliding_verdict_t *verdict)
{
    with_algorithm(*policy, now_ms, limit, [&](const auto &algorithm) {
        algorithm.describe(state, cost, verdict);
    });
}

uint64_t limit_sliding_seconds(uint64_t ms)
{
    return ms / 1000 + (ms % 1000 != 0);
}

uint64_t limit_sliding_expires_ms(const limit_sliding_policy_t *policy,
                                  limit_sliding_state_t state, uint64_t now_ms,
                                  uint32_t limit)
{
    return with_algorithm(*policy, now_ms, limit, [&](const auto &algorithm) {
        return algorithm.expires_ms(state);
    });
}

uint64_t limit_sliding_used(const limit_sliding_policy_t *policy,
                            uint32_t limit,
                            const limit_sliding_verdict_t *verdict)
{
    uint64_t capacity = limit_sliding_capacity(policy, limit);
    uint64_t used = capacity - std::min<uint64_t>(capacity, verdict->remaining);

    /* that of a queue is what waits in it */
    if (policy->algorithm == LIMIT_SLIDING_LEAKY_BUCKET) {
        return used;
    }

    return used + (verdict->excess + 999) / 1000;
}
