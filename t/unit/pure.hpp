/* Copyright (C) the limit_sliding authors */

/* Pure functions of one key's state, by algorithms whose state is a word. */

#pragma once

#include "core/limiter/limiter.hpp"
#include "core/rules/word_steps.hpp"

namespace pure {

using namespace limit_sliding;

/*
 * Would a request of this cost be admitted now?  If so *next is the state that
 * records it, else it is left alone: a rejected request is not recorded.
 * Precondition: the state is at most 128 windows old; the zone sees to it.
 */
inline bool admit(const Policy &policy, State state, uint64_t now_ms, uint32_t limit, uint32_t cost,
                  State *next) {
    return with_algorithm(policy, now_ms, limit, [&](const auto &algorithm) {
        return algorithm.admit(state, cost, next);
    });
}

/*
 * Takes back from a state, as far as it still counts there, the cost that an
 * admission recorded; `recorded` is the state as that admission left it.
 */
inline State refund(const Policy &policy, State state, uint64_t now_ms, uint32_t limit,
                    State recorded, uint32_t cost) {
    return with_algorithm(policy, now_ms, limit, [&](const auto &algorithm) {
        return algorithm.refund(state, recorded, cost);
    });
}

/* Describes a state to a request that has yet to be decided. */
inline Verdict describe(const Policy &policy, State state, uint64_t now_ms, uint32_t limit,
                        uint32_t cost) {
    Verdict verdict;

    with_algorithm(policy, now_ms, limit,
                   [&](const auto &algorithm) { algorithm.describe(state, cost, &verdict); });

    return verdict;
}

/* Milliseconds until the state is as good as none; 0: it is already. */
inline uint64_t expires_ms(const Policy &policy, State state, uint64_t now_ms, uint32_t limit) {
    return with_algorithm(policy, now_ms, limit,
                          [&](const auto &algorithm) { return algorithm.expires_ms(state); });
}

} // namespace pure
