/* Copyright (C) the limit_sliding authors */

#include <algorithm>
#include <cassert>
#include <type_traits>

#include "core/holds/hold.hpp"
#include "core/limiter/history_decision.hpp"
#include "core/rings/ring_rule.hpp"
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

/* Concludes for states of one word.  A wait of 0 is computed later, by Claim::retry_after_ms(). */
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

bool is_queued(const Claim &claim) {
    return claim.policy->algorithm == Algorithm::kLeakyBucket && is_admitted(claim)
           && claim.purpose == Purpose::kConsume;
}

/* An admission may have been decided with fewer parts than the state of the counter has now. */
void describe_admitted(const Claim &claim, Verdict *verdict) {
    if (is_admitted(claim)) { verdict->excess = verdict->retry_after_ms = 0; }
}

template <class Algorithm>
[[gnu::noinline]] void describe_word(const Claim &claim, uint64_t now_ms, uint64_t cost,
                                     Verdict *verdict) {
    Algorithm algorithm(*claim.policy, time_of(claim, now_ms), claim.limit);
    algorithm.describe(claim.state, cost, verdict);
    if constexpr (std::is_same_v<Algorithm, Bucket>) {
        if (is_queued(claim)) { algorithm.describe_queued(claim.state, claim.cost, verdict); }
    }
    if constexpr (std::is_same_v<Algorithm, Counter>) { describe_admitted(claim, verdict); }
}

/* Describes the remaining units of a key with a ring. */
void describe_ring(const Claim &claim, uint64_t now_ms, uint64_t, Verdict *verdict) {
    history_of(claim, now_ms).describe(verdict);
}

template <unsigned kKind>
[[gnu::flatten]] void describe_fast(const Claim &claim, uint64_t now_ms, uint64_t cost,
                                    Verdict *verdict) {
    FastCounter<kKind> counter(*claim.policy, time_of(claim, now_ms), claim.limit);
    if (!counter.describe(claim.state, cost, verdict)) {
        describe_word<Counter>(claim, now_ms, cost, verdict);
        return;
    }
    describe_admitted(claim, verdict);
}

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

    with_algorithm(*claim, now_ms, [&](const auto &algorithm) {
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

/* The functions for the limits of some policies. */
struct Functions {
    Decide *consume;
    Decide *consume_key_window; /* for keys with their own window */
    Decide *look;               /* for keys with the zone's window */
    void (*describe)(const Claim &claim, uint64_t now_ms, uint64_t cost, Verdict *verdict);
};

template <class Algorithm>
constexpr Functions kWord = {consume_word<Algorithm>, consume_anywhere<Algorithm, false>,
                             look_word<Algorithm>, describe_word<Algorithm>};

template <unsigned kKind>
constexpr Functions kFast
    = {consume_word<FastCounter<kKind>, Counter>, consume_anywhere<Counter, false>,
       look_word<FastCounter<kKind>>, describe_fast<kKind>};

constexpr Functions kLargeCounter
    = {consume_anywhere<Counter, true>, consume_anywhere<Counter, false>, look_anyhow,
       describe_word<Counter>};

constexpr Functions kParts = {consume_events, consume_events_anywhere, look_anyhow, describe_ring};

/* Most logs have pages, which the brief attempt of consume_events() cannot read. */
constexpr Functions kLog
    = {consume_events_anywhere, consume_events_anywhere, look_anyhow, describe_ring};

constexpr Functions kHolds
    = {take_in_flight, take_in_flight, look_in_flight, describe_word<InFlight>};

/* Returns the functions that are compiled for the kind of a limit; larger limits are rare. */
template <unsigned... kKinds>
[[gnu::always_inline]] inline const Functions &counter_functions(
    const Policy &policy, uint64_t limit, std::integer_sequence<unsigned, kKinds...>) {
    static constexpr Functions kFunctions[] = {kFast<kKinds>...};
    if (limit > kCounterKinds[sizeof...(kKinds) - 1].limit_max) { return kLargeCounter; }
    return kFunctions[counter_kind_of(policy, limit)];
}

[[gnu::always_inline]] inline const Functions &functions_of(const Policy &policy, uint64_t limit) {
    switch (policy.algorithm) {
    case Algorithm::kCounter:
        if (policy.has_rings()) { return kParts; }

        return counter_functions(policy, limit,
                                 std::make_integer_sequence<unsigned, kCounterWhole + 1>());
    case Algorithm::kLog:
        return kLog;
    case Algorithm::kFixed:
        return policy.calendar == Calendar::kNone ? kWord<Fixed> : kWord<CalendarFixed>;
    case Algorithm::kInFlight:
        return kHolds;
    default:
        return kWord<Bucket>;
    }
}

} // namespace

Decide *consume_by_history(const Policy &policy, uint64_t limit) {
    const Functions &functions = functions_of(policy, limit);
    return policy.salt == 0 ? functions.consume : functions.consume_key_window;
}

Decide *look_by_history(const Policy &policy, uint64_t limit) {
    return policy.salt == 0 ? functions_of(policy, limit).look : look_anyhow;
}

Verdict describe_history(const Claim &claim, uint64_t cost, uint64_t now_ms) {
    Verdict result;

    if (claim.policy->has_rings()) {
        RingRule history = history_of(claim, now_ms);
        if (history.look(cost, &result) == Outcome::kAdmitted) { history.describe(&result); }
        return result;
    }

    with_algorithm(claim, now_ms,
                   [&](const auto &algorithm) { algorithm.describe(claim.state, cost, &result); });
    return result;
}

double share(const Claim &claim, uint64_t now_ms) {
    if (claim.standing != Standing::kHere) {
        const Verdict &given = claim.is_here() ? claim.rejection : claim.given_verdict();
        const auto full = static_cast<double>(claim.policy->capacity(given.limit));
        return 1 - static_cast<double>(given.remaining) / full;
    }
    if (claim.policy->has_rings()) { return history_of(claim, now_ms).share(); }
    return with_algorithm(claim, now_ms,
                          [&](const auto &algorithm) { return algorithm.share(claim.state); });
}

Verdict Claim::describe(uint64_t now_ms) const {
    Verdict result; /* the only result, so that no copy is made */
    const bool admitted = is_admitted(*this);

    if (standing == Standing::kOwing) {
        result = rejection;
    } else if (!is_here()) {
        result = given_verdict();
    } else if (outcome == Outcome::kRefused) {
        result = {limit, 0, 0, state, state, 0};
    } else if (!admitted && policy->has_rings()) {
        result = rejection;
    } else {
        functions_of(*policy, limit).describe(*this, now_ms, admitted ? 0 : cost, &result);
    }

    return result;
}

uint64_t Claim::window_ms(uint64_t now_ms) const {
    return policy->length_ms(time_of(*this, now_ms));
}

uint64_t Claim::retry_after_ms(uint64_t now_ms) const {
    if (const uint64_t known = known_retry_after_ms(); known != 0) { return known; }
    if (!is_here()) { return verdict->retry_after_ms; }
    if (outcome == Outcome::kRefused) { return state; }
    if (is_admitted(*this)) { return 0; }
    if (policy->has_rings() || standing == Standing::kOwing) { return rejection.retry_after_ms; }
    return with_algorithm(*this, now_ms, [&](const auto &algorithm) {
        return algorithm.retry_after_ms(state, cost);
    });
}

uint64_t Claim::delay_ms(uint64_t now_ms) const {
    if (!is_here()) { return verdict->delay_ms; }
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
