/*
 * Copyright (C) the limit_sliding authors
 */

/* One key's state, as pure functions. */

#include <algorithm>

#include "core/algorithm.hpp"
#include "core/limiter.hpp"

namespace limit_sliding {

uint64_t capacity(const Policy *policy, uint32_t limit)
{
    return with_algorithm(*policy, 0, limit, [](const auto &algorithm) {
        return algorithm.capacity();
    });
}

int admit(const Policy *policy, State state, uint64_t now_ms, uint32_t limit,
          uint32_t cost, State *next)
{
    return with_algorithm(*policy, now_ms, limit, [&](const auto &algorithm) {
        return algorithm.admit(state, cost, next);
    });
}

State refund(const Policy *policy, State state, uint64_t now_ms, uint32_t limit,
             State recorded, uint32_t cost)
{
    return with_algorithm(*policy, now_ms, limit, [&](const auto &algorithm) {
        return algorithm.refund(state, recorded, cost);
    });
}

void describe(const Policy *policy, State state, uint64_t now_ms,
              uint32_t limit, uint32_t cost, Verdict *verdict)
{
    with_algorithm(*policy, now_ms, limit, [&](const auto &algorithm) {
        algorithm.describe(state, cost, verdict);
    });
}

uint64_t seconds(uint64_t ms)
{
    return ms / 1000 + (ms % 1000 != 0);
}

uint64_t expires_ms(const Policy *policy, State state, uint64_t now_ms,
                    uint32_t limit)
{
    return with_algorithm(*policy, now_ms, limit, [&](const auto &algorithm) {
        return algorithm.expires_ms(state);
    });
}

uint64_t used(const Policy *policy, uint32_t limit, const Verdict *verdict)
{
    uint64_t capacity = limit_sliding::capacity(policy, limit);
    uint64_t used = capacity - std::min<uint64_t>(capacity, verdict->remaining);

    /* that of a queue is what waits in it */
    if (policy->algorithm == Algorithm::kLeakyBucket) {
        return used;
    }

    return used + (verdict->excess + 999) / 1000;
}

} // namespace limit_sliding
