/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>
#include <type_traits>

#include "core/bucket.hpp"
#include "core/counter.hpp"
#include "core/fixed.hpp"
#include "core/policy.hpp"
#include "core/slot.hpp"

namespace limit_sliding {

/* Calls visit() with the policy's algorithm, which must be one whose state is a
 * word. */
template <class Visit>
auto with_algorithm(const Policy &policy, uint64_t now_ms, uint32_t limit, const Visit &visit) {
    switch (policy.algorithm) {
    case Algorithm::kFixed:
        return visit(Fixed(policy, now_ms, limit));
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
        return visit(Bucket(policy, now_ms, limit));
    default:
        return visit(Counter(policy, now_ms, limit));
    }
}

/* Answers what the table asks about states, for one request to such an
 * algorithm. */
template <class Algorithm>
struct WordStep {
    Algorithm algorithm;
    uint32_t cost;

    WordStep(const Algorithm &a, uint32_t c) : algorithm(a), cost(c) {}

    [[gnu::always_inline]] bool admit(uint64_t state, uint64_t *next) const {
        return algorithm.admit(state, cost, next);
    }

    /* Decides for most states; false: admit() has to. */
    [[gnu::always_inline]] bool admit_ready(uint64_t state, uint64_t *next,
                                            bool *is_admitted) const {
        if constexpr (std::is_same_v<Algorithm, Bucket>) {
            if (!algorithm.is_plain(state, cost)) { return false; }

            *is_admitted = algorithm.template admit<true>(state, cost, next);
        } else {
            *is_admitted = algorithm.admit(state, cost, next);
        }

        return true;
    }

    uint64_t used(const Copy &copy) const { return algorithm.rank(copy.bare_state()); }

    uint64_t expires_ms(const Copy &copy) const { return algorithm.expires_ms(copy.bare_state()); }

    bool clear(Copy *copy) const { return copy->store(0); }
};

/*
 * Decides for the states that WordStep::admit_ready() leaves to admit(), too.
 */
template <class Algorithm>
struct AnyWordStep : WordStep<Algorithm> {
    using WordStep<Algorithm>::WordStep;

    [[gnu::always_inline]] bool admit_ready(uint64_t state, uint64_t *next,
                                            bool *is_admitted) const {
        *is_admitted = this->admit(state, next);
        return true;
    }
};

} // namespace limit_sliding
