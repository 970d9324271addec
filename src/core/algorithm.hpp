/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/bucket.hpp"
#include "core/claim.hpp"
#include "core/counter.hpp"
#include "core/epoch.hpp"
#include "core/fixed.hpp"
#include "core/policy.hpp"
#include "core/slot.hpp"

namespace limit_sliding {

/* Calls visit() with the policy's algorithm, which must be one whose state is a
 * word. */
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

/* Slots that have another window than a claim, see Others.  Few are asked for, so all
 * is made anew for each. */
class WordOthers {
public:
    /* `time_ms` is of the zone's time. */
    WordOthers(const Claim &claim, uint64_t time_ms) : claim_(claim), time_ms_(time_ms) {}

    bool is_recent(uint64_t tag) const;
    uint64_t used(const Copy &copy) const;
    uint64_t expires_ms(const Copy &copy) const;

private:
    template <class Visit>
    auto visit(const Visit &visit_others) const;

    const Claim &claim_;
    uint64_t time_ms_;
};

/* Answers what the table asks about states, for one request to such an
 * algorithm. */
template <class Algorithm>
struct WordStep {
    Algorithm algorithm;
    uint64_t cost;
    const Claim *claim;
    uint64_t time_ms; /* of the zone's time */

    WordStep(const Algorithm &a, uint64_t c, const Claim &of, uint64_t now_ms)
        : algorithm(a), cost(c), claim(&of), time_ms(now_ms) {}

    [[gnu::always_inline]] bool admit(uint64_t state, uint64_t *next) const {
        return algorithm.admit(state, cost, next);
    }

    [[gnu::always_inline]] bool admit_ready(uint64_t state, uint64_t *next,
                                            bool *is_admitted) const {
        *is_admitted = admit(state, next);
        return true;
    }

    uint64_t used(const Copy &copy) const { return algorithm.rank(copy.bare_state()); }

    uint64_t expires_ms(const Copy &copy) const { return algorithm.expires_ms(copy.bare_state()); }

    bool clear(Copy *copy) const { return copy->store(0); }

    uint64_t ahead(const Copy &copy) const {
        uint64_t ms = algorithm.owed_ms(copy.bare_state());

        return tag::is_own(copy.tag) ? epochs().within(ms, tag::digits(copy.tag))
                                     : algorithm.epochs_within(ms);
    }

    uint64_t used_at_all(const Copy &copy, unsigned digits) const {
        return algorithm.rank_at_all(copy.bare_state(), digits);
    }

    WordOthers others() const { return {*claim, time_ms}; }

private:
    OwnEpochs epochs() const { return {*claim->policy, time_ms}; }
};

/* Records a cost whatever the limit says. */
template <class Algorithm>
struct ChargeStep : WordStep<Algorithm> {
    mutable uint64_t lost = 0; /* units of it for which there was no room */

    using WordStep<Algorithm>::WordStep;

    bool admit(uint64_t state, uint64_t *next) const {
        lost = this->algorithm.charge(state, this->cost, next);

        /* a lower limit may have no room for what the key owes already */
        return lost < this->cost;
    }

    bool admit_ready(uint64_t state, uint64_t *next, bool *is_admitted) const {
        *is_admitted = admit(state, next);
        return true;
    }
};

template <class Algorithm>
ChargeStep(const Algorithm &, uint64_t, const Claim &, uint64_t) -> ChargeStep<Algorithm>;

/* Records what was rejected, as far as the limit has room for it. */
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

/* Replaces the state. */
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

/* Answers no more than what Table::update_ready() asks, and of most states. */
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
