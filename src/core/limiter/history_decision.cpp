/* Copyright (C) the limit_sliding authors */

#include <algorithm>
#include <cassert>
#include <type_traits>
#include <utility>

#include "core/limiter/history_decision.hpp"
#include "core/rings/ring_rule.hpp"
#include "core/rules/counter_fast.hpp"
#include "core/rules/word_steps.hpp"

namespace limit_sliding {

namespace {

/* Opens the history of a key.  Out of line, because it is large and other algorithms do not need
 * it. */
[[gnu::noinline]] RingRule history_of(const Claim &claim, uint64_t now_ms) {
    return RingRule(claim, time_of(claim, now_ms));
}

template <class Result>
void conclude(Claim *claim, const Result &result) {
    assert(result.outcome != Outcome::kUndecided);
    claim->state = result.state;
    claim->outcome = result.outcome;
}

/* Concludes for states of one word.  A wait of 0 is computed later, by find_retry_after_ms(). */
template <class Result>
void conclude_word(Claim *claim, const Result &result, uint64_t retry_after_ms = 0) {
    conclude(claim, result);
    claim->rejection.retry_after_ms = retry_after_ms;
}

/* The next three functions are out of line and take no intermediate results, so that common
 * requests keep their values in registers. */

/* Consumes in all cases. */
template <class Algorithm>
[[gnu::noinline]] void consume_anyhow(Claim *claim, uint64_t now_ms) {
    Algorithm algorithm(*claim->policy, time_of(*claim, now_ms), claim->limit);
    conclude_word(claim, table_of(*claim, algorithm, now_ms)
                             .update(WordStep(algorithm, claim->cost, *claim, now_ms),
                                     claim->policy->full == WhenFull::kEvict));
}

/* Consumes from a key in any line, or with a state that admit_ready() could not decide. kIsShared:
 * the key has the zone's window. */
template <class Algorithm, bool kIsShared>
[[gnu::noinline]] void consume_anywhere(Claim *claim, uint64_t now_ms) {
    Algorithm algorithm(*claim->policy, time_of(*claim, now_ms), claim->limit);
    auto table
        = kIsShared ? shared_table_of(*claim, algorithm) : table_of(*claim, algorithm, now_ms);
    Table<WordSlots>::Result result;

    if (!table.update_ready(WordStep(algorithm, claim->cost, *claim, now_ms), &result)) {
        consume_anyhow<Algorithm>(claim, now_ms);
        return;
    }

    conclude_word(claim, result);
}

/* Consumes for the common request.  Falls back to Anywhere for the states that Algorithm cannot
 * decide. */
template <class Algorithm, class Anywhere = Algorithm>
[[gnu::noinline, gnu::flatten]] void consume_word(Claim *claim, uint64_t now_ms) {
    Algorithm algorithm(*claim->policy, time_of(*claim, now_ms), claim->limit);
    auto table = shared_table_of(*claim, algorithm);
    Table<WordSlots>::Result result;

    if (!table.update_ready(table.find_ready(), ReadyAdmit<Algorithm>{algorithm, claim->cost},
                            &result)) {
        consume_anywhere<Anywhere, true>(claim, now_ms);
        return;
    }

    conclude_word(claim, result,
                  result.outcome == Outcome::kRejected
                      ? algorithm.retry_after_ms(result.state, claim->cost)
                      : 0);
}

/* The kinds with functions compiled for them; larger limits are rare. */
using FastKinds = std::make_integer_sequence<unsigned, kCounterWhole + 1>;

/* Returns the template's function for the kind of a limit, or `other` for larger limits. */
template <template <unsigned> class Fast, class Function, unsigned... kKinds>
[[gnu::always_inline]] inline Function *fast_function(const Policy &policy, uint64_t limit,
                                                      std::integer_sequence<unsigned, kKinds...>,
                                                      Function *other) {
    static constexpr Function *kFunctions[] = {Fast<kKinds>::call...};
    if (limit > kCounterKinds[sizeof...(kKinds) - 1].limit_max) { return other; }
    return kFunctions[counter_kind_of(policy, limit)];
}

template <unsigned kKind>
struct ConsumeFast {
    static void call(Claim *claim, uint64_t now_ms) {
        consume_word<FastCounter<kKind>, Counter>(claim, now_ms);
    }
};

bool is_queued(const Claim &claim) {
    return claim.policy->algorithm == Algorithm::kLeakyBucket && is_admitted(claim)
           && claim.purpose == Purpose::kConsume;
}

template <class Algorithm>
[[gnu::noinline]] void describe_word(const Claim &claim, uint64_t now_ms, uint64_t cost,
                                     Verdict *verdict) {
    Algorithm algorithm(*claim.policy, time_of(claim, now_ms), claim.limit);
    algorithm.describe(claim.state, cost, verdict);
    if constexpr (std::is_same_v<Algorithm, Bucket>) {
        if (is_queued(claim)) { algorithm.describe_queued(claim.state, claim.cost, verdict); }
    }
}

/* Describes the remaining units of a key with a ring. */
[[gnu::noinline]] void describe_ring(const Claim &claim, uint64_t now_ms, Verdict *verdict) {
    history_of(claim, now_ms).describe(verdict);
}

template <unsigned kKind>
struct DescribeFast {
    [[gnu::flatten]] static void call(const Claim &claim, uint64_t now_ms, uint64_t cost,
                                      Verdict *verdict) {
        FastCounter<kKind> counter(*claim.policy, time_of(claim, now_ms), claim.limit);
        if (!counter.describe(claim.state, cost, verdict)) {
            describe_word<Counter>(claim, now_ms, cost, verdict);
        }
    }
};

[[gnu::noinline, gnu::flatten]] void consume_events_anywhere(Claim *claim, uint64_t now_ms) {
    RingRule history(*claim, time_of(*claim, now_ms));
    conclude(claim, history.update(claim->cost, &claim->rejection));
}

/* Consumes from a ring.  All code is inline, so that each value is loaded once. */
[[gnu::noinline, gnu::flatten]] void consume_events(Claim *claim, uint64_t now_ms) {
    RingRule history(*claim, time_of(*claim, now_ms), true);
    RingRule::Result result;
    if (!history.update_ready(claim->cost, &result, &claim->rejection)) {
        consume_events_anywhere(claim, now_ms);
        return;
    }
    conclude(claim, result);
}

/* Decides without consuming, in all cases. */
[[gnu::noinline]] void look_anyhow(Claim *claim, uint64_t now_ms) {
    if (claim->policy->has_rings()) {
        claim->outcome = history_of(*claim, now_ms).look(claim->cost, &claim->rejection);
        return;
    }

    with_algorithm(
        *claim->policy, time_of(*claim, now_ms), claim->limit, [&](const auto &algorithm) {
            uint64_t next;
            claim->state = table_of(*claim, algorithm, now_ms).look_state();
            claim->rejection.retry_after_ms = 0;
            claim->outcome = algorithm.admit(claim->state, claim->cost, &next) ? Outcome::kAdmitted
                                                                               : Outcome::kRejected;
        });
}

/* Decides without consuming, for the common request. */
template <class Algorithm>
[[gnu::noinline, gnu::flatten]] void look_word(Claim *claim, uint64_t now_ms) {
    Algorithm algorithm(*claim->policy, time_of(*claim, now_ms), claim->limit);
    Copy copy = shared_table_of(*claim, algorithm).find_ready();
    uint64_t state = copy.bare_state();
    uint64_t next;
    bool admits;

    if (copy.kind != Copy::confirmed
        || !algorithm.admit_ready(state, claim->cost, &next, &admits)) {
        look_anyhow(claim, now_ms);
        return;
    }

    claim->state = state;
    claim->outcome = admits ? Outcome::kAdmitted : Outcome::kRejected;
    claim->rejection.retry_after_ms = admits ? 0 : algorithm.retry_after_ms(state, claim->cost);
}

template <unsigned kKind>
struct LookFast {
    static void call(Claim *claim, uint64_t now_ms) {
        look_word<FastCounter<kKind>>(claim, now_ms);
    }
};

/* Returns the function for keys with their own window. */
Decide *consume_key_window_of(const Policy &policy) {
    if (policy.has_rings()) { return consume_events_anywhere; }

    switch (policy.algorithm) {
    case Algorithm::kCounter:
        return consume_anywhere<Counter, false>;
    case Algorithm::kFixed:
        return policy.calendar == Calendar::kNone ? consume_anywhere<Fixed, false>
                                                  : consume_anywhere<CalendarFixed, false>;
    default:
        return consume_anywhere<Bucket, false>;
    }
}

} // namespace

Decide *consume_by_history(const Policy &policy, uint64_t limit) {
    if (policy.salt != 0) { return consume_key_window_of(policy); }

    switch (policy.algorithm) {
    case Algorithm::kCounter:
        return policy.has_rings() ? consume_events
                                  : fast_function<ConsumeFast>(policy, limit, FastKinds(),
                                                               consume_anywhere<Counter, true>);
    case Algorithm::kLog:
        /* most logs have pages, which the brief attempt cannot read */
        return consume_events_anywhere;
    case Algorithm::kFixed:
        return policy.calendar == Calendar::kNone ? consume_word<Fixed>
                                                  : consume_word<CalendarFixed>;
    default:
        return consume_word<Bucket>;
    }
}

Decide *look_by_history(const Policy &policy, uint64_t limit) {
    if (policy.has_rings() || policy.salt != 0) { return look_anyhow; }

    switch (policy.algorithm) {
    case Algorithm::kCounter:
        return fast_function<LookFast>(policy, limit, FastKinds(), look_anyhow);
    case Algorithm::kFixed:
        return policy.calendar == Calendar::kNone ? look_word<Fixed> : look_word<CalendarFixed>;
    default:
        return look_word<Bucket>;
    }
}

Verdict describe_history(const Claim &claim, uint64_t cost, uint64_t now_ms) {
    Verdict result;

    if (claim.policy->has_rings()) {
        RingRule history = history_of(claim, now_ms);
        if (history.look(cost, &result) == Outcome::kAdmitted) { history.describe(&result); }
        return result;
    }

    with_algorithm(*claim.policy, time_of(claim, now_ms), claim.limit,
                   [&](const auto &algorithm) { algorithm.describe(claim.state, cost, &result); });
    return result;
}

double share(const Claim &claim, uint64_t now_ms) {
    if (claim.verdict != nullptr || claim.owes) {
        const Verdict &told = claim.owes ? claim.rejection : *claim.verdict;
        return 1 - static_cast<double>(told.remaining) / static_cast<double>(told.limit);
    }
    if (claim.policy->has_rings()) { return history_of(claim, now_ms).share(); }
    return with_algorithm(*claim.policy, time_of(claim, now_ms), claim.limit,
                          [&](const auto &algorithm) { return algorithm.share(claim.state); });
}

Verdict Claim::describe(uint64_t now_ms) const {
    Verdict result;

    if (verdict != nullptr || owes) {
        result = owes ? rejection : *verdict;
        return result;
    }

    if (outcome == Outcome::kRefused) {
        result = {limit, 0, 0, state, state, 0};
        return result;
    }

    bool admitted = is_admitted(*this);

    if (policy->has_rings()) {
        if (admitted) {
            describe_ring(*this, now_ms, &result);
        } else {
            result = rejection;
        }

        return result;
    }

    uint64_t wanted = admitted ? 0 : cost;

    switch (policy->algorithm) {
    case Algorithm::kFixed:
        (policy->calendar == Calendar::kNone
             ? describe_word<Fixed>
             : describe_word<CalendarFixed>)(*this, now_ms, wanted, &result);
        break;
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
        describe_word<Bucket>(*this, now_ms, wanted, &result);
        break;
    default:
        fast_function<DescribeFast>(*policy, limit, FastKinds(),
                                    describe_word<Counter>)(*this, now_ms, wanted, &result);

        if (admitted) {
            /* the admission may have been decided with fewer parts than the state has now */
            result.excess = 0;
            result.retry_after_ms = 0;
        }
    }

    return result;
}

uint64_t Claim::window_ms(uint64_t now_ms) const {
    return policy->length_ms(time_of(*this, now_ms));
}

uint64_t Claim::find_retry_after_ms(uint64_t now_ms) const {
    if (verdict != nullptr) { return verdict->retry_after_ms; }
    if (outcome == Outcome::kRefused) { return state; }
    if (is_admitted(*this)) { return 0; }
    if (policy->has_rings() || owes) { return rejection.retry_after_ms; }
    return with_algorithm(*policy, time_of(*this, now_ms), limit, [&](const auto &algorithm) {
        return algorithm.retry_after_ms(state, cost);
    });
}

uint64_t Claim::delay_ms(uint64_t now_ms) const {
    if (verdict != nullptr) { return verdict->delay_ms; }
    if (!is_queued(*this)) { return 0; }
    return Bucket(*policy, time_of(*this, now_ms), limit).delay_ms(state, cost);
}

uint64_t Policy::capacity(uint64_t limit) const {
    /* Bucket needs limits of 32 bits; under larger ones, in Redis, any burst drains in time */
    bool has_burst = burst != 0 || algorithm == Algorithm::kLeakyBucket;
    uint64_t bounded = has_burst ? std::min<uint64_t>(limit, UINT32_MAX) : limit;

    return with_algorithm(*this, 0, bounded,
                          [](const auto &algorithm_now) { return algorithm_now.capacity(); });
}

uint64_t Policy::used(const Verdict &verdict) const {
    uint64_t most = capacity(verdict.limit);
    uint64_t taken = most - std::min<uint64_t>(most, verdict.remaining);

    uint64_t excess = (verdict.excess + 999) / 1000;

    /* the used units of a queue are the waiting requests; its excess omits the first one */
    if (algorithm == Algorithm::kLeakyBucket) {
        return excess == 0 ? taken : std::max(taken, excess + 1);
    }

    return taken + excess;
}

} // namespace limit_sliding
