/* Copyright (C) the limit_sliding authors */

/*
 * The algorithms with a state of one word: counters, fixed windows and buckets.  Each is a pure
 * function of a state, a time, a limit and a cost, and returns the next state and a verdict.  This
 * header selects the algorithm of a policy, and connects it to the table by steps (table.hpp).
 */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/policy/claim.hpp"
#include "core/policy/policy.hpp"
#include "core/policy/tag_epoch.hpp"
#include "core/rules/bucket.hpp"
#include "core/rules/counter.hpp"
#include "core/rules/fixed_window.hpp"
#include "core/table/slot.hpp"

namespace limit_sliding {

/* Calls visit() with the algorithm of a policy with states of one word. */
template <class Visit>
auto with_algorithm(const Policy &policy, uint64_t now_ms, uint64_t limit, const Visit &visit) {
    switch (policy.algorithm) {
    case Algorithm::kFixed:
        if (policy.calendar != Calendar::kNone) {
            return visit(CalendarFixed(policy, now_ms, limit));
        }

        return visit(Fixed(policy, now_ms, limit));
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
        return visit(Bucket(policy, now_ms, limit));
    default:
        return visit(Counter(policy, now_ms, limit));
    }
}

/* The view of slots with another window than the claim's, see OtherWindowSlots.  Such slots are
 * rare, so each call makes the view anew. */
class WordOtherWindowSlots {
public:
    /* `time_ms` is the zone's time. */
    WordOtherWindowSlots(const Claim &claim, uint64_t time_ms) : claim_(claim), time_ms_(time_ms) {}

    bool is_recent(uint64_t tag) const;
    uint64_t used(const Copy &copy) const;
    uint64_t expires_ms(const Copy &copy) const;

private:
    template <class Visit>
    auto visit(const Visit &visit_slots) const;

    const Claim &claim_;
    uint64_t time_ms_;
};

/* Ranks states at one moment. */
template <class Algorithm>
struct WordView {
    Algorithm seen;
    const Claim *claim;
    uint64_t seen_ms; /* the zone's time */

    uint64_t used(const Copy &copy) const { return seen.rank(copy.bare_state()); }

    uint64_t expires_ms(const Copy &copy) const { return seen.expires_ms(copy.bare_state()); }

    uint64_t used_at_all(const Copy &copy, unsigned digits) const {
        return seen.rank_at_all(copy.bare_state(), digits);
    }

    WordOtherWindowSlots other_window_slots() const { return {*claim, seen_ms}; }
};

template <class Algorithm>
WordView(const Algorithm &, const Claim *, uint64_t) -> WordView<Algorithm>;

/* The step of the table (table.hpp) for one request.  States count until they have expired by the
 * clocks of all workers. */
template <class Algorithm>
struct WordStep : WordView<Algorithm> {
    Algorithm algorithm;
    uint64_t cost;

    WordStep(const Algorithm &a, uint64_t c, const Claim &of, uint64_t now_ms)
        : WordView<Algorithm>{Algorithm(*of.policy, behind_ms(now_ms), of.limit), &of,
                              behind_ms(now_ms)},
          algorithm(a), cost(c) {}

    [[gnu::always_inline]] bool admit(uint64_t state, uint64_t *next) const {
        return algorithm.admit(state, cost, next);
    }

    [[gnu::always_inline]] bool admit_ready(uint64_t state, uint64_t *next,
                                            bool *is_admitted) const {
        *is_admitted = admit(state, next);
        return true;
    }

    bool clear(Copy *copy) const { return copy->store(0); }
};

/* Records a rejected cost up to the limit. */
template <class Algorithm>
struct RejectedStep : WordStep<Algorithm> {
    using WordStep<Algorithm>::WordStep;

    bool admit(uint64_t state, uint64_t *next) const {
        *next = this->algorithm.record_rejected(state, this->cost);
        return true;
    }

    bool admit_ready(uint64_t state, uint64_t *next, bool *is_admitted) const {
        *is_admitted = admit(state, next);
        return true;
    }
};

template <class Algorithm>
RejectedStep(const Algorithm &, uint64_t, const Claim &, uint64_t) -> RejectedStep<Algorithm>;

template <class Algorithm>
struct ReplaceStep : WordStep<Algorithm> {
    uint64_t state_to_be;

    ReplaceStep(const Algorithm &a, uint64_t state, const Claim &of, uint64_t now_ms)
        : WordStep<Algorithm>(a, 1, of, now_ms), state_to_be(state) {}

    bool admit(uint64_t, uint64_t *next) const {
        *next = state_to_be;
        return true;
    }

    bool admit_ready(uint64_t state, uint64_t *next, bool *is_admitted) const {
        *is_admitted = admit(state, next);
        return true;
    }
};

/* The part of a step that Table::update_ready() needs; it decides most states. */
template <class Algorithm>
struct ReadyStep {
    Algorithm &algorithm;
    uint64_t cost;

    ReadyStep(Algorithm &a, uint64_t c) : algorithm(a), cost(c) {}

    [[gnu::always_inline]] bool admit_ready(uint64_t state, uint64_t *next,
                                            bool *is_admitted) const {
        return algorithm.admit_ready(state, cost, next, is_admitted);
    }
};

} // namespace limit_sliding
