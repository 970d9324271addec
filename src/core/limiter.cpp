/* Copyright (C) the limit_sliding authors */

#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/claim_table.hpp"
#include "core/history.hpp"
#include "core/known_counter.hpp"
#include "core/limiter.hpp"

namespace limit_sliding {

namespace {

/* Opens the history of a key.  It is out of line as it is large, and not needed
 * by the algorithms of one word. */
[[gnu::noinline]] History history_of(const Claim &claim, uint64_t now_ms) {
    return History(claim, time_of(claim, now_ms));
}

template <class Result>
void conclude(Claim *claim, const Result &result) {
    claim->state = result.state;
    claim->outcome = result.outcome;
}

/* The same for a state of one word; 0: retry_after_ms() has to find out. */
template <class Result>
void conclude_word(Claim *claim, const Result &result, uint64_t retry_after_ms = 0) {
    conclude(claim, result);
    claim->rejection.retry_after_ms = retry_after_ms;
}

/* Each of the next three is out of line, and makes everything anew, so that the
 * values of what most requests do stay in registers, and none is saved for what
 * another does. */

/* Consumes, whatever that takes. */
template <class Algorithm>
[[gnu::noinline]] void consume_anyhow(Claim *claim, uint64_t now_ms) {
    Algorithm algorithm(*claim->policy, time_of(*claim, now_ms), claim->limit);

    conclude_word(claim, table_of(*claim, algorithm, now_ms)
                             .update(step_of(*claim, algorithm, claim->cost, now_ms),
                                     claim->policy->full == WhenFull::kEvict));
}

/* Consumes from a key that is in another line than its first, or whose state is
 * one that admit_ready() could not decide on.  kIsShared: its window is the zone's. */
template <class Algorithm, bool kIsShared>
[[gnu::noinline]] void consume_anywhere(Claim *claim, uint64_t now_ms) {
    Algorithm algorithm(*claim->policy, time_of(*claim, now_ms), claim->limit);
    auto table
        = kIsShared ? shared_table_of(*claim, algorithm) : table_of(*claim, algorithm, now_ms);
    Table<WordSlots>::Result result;

    if (!table.update_ready(table.find_ready_anywhere(),
                            step_of(*claim, algorithm, claim->cost, now_ms), &result)) {
        consume_anyhow<Algorithm>(claim, now_ms);
        return;
    }

    conclude_word(claim, result);
}

/* Consumes as most requests do.  Anywhere decides on the states that Algorithm
 * leaves to it. */
template <class Algorithm, class Anywhere = Algorithm>
[[gnu::noinline, gnu::flatten]] void consume_word(Claim *claim, uint64_t now_ms) {
    Algorithm algorithm(*claim->policy, time_of(*claim, now_ms), claim->limit);
    auto table = shared_table_of(*claim, algorithm);
    Table<WordSlots>::Result result;

    if (!table.update_ready(table.find_ready(), ReadyStep{algorithm, claim->cost}, &result)) {
        consume_anywhere<Anywhere, true>(claim, now_ms);
        return;
    }

    conclude_word(claim, result,
                  result.outcome == Outcome::kRejected
                      ? algorithm.retry_after_ms(result.state, claim->cost)
                      : 0);
}

/* The kinds that have code of their own: limits beyond them are rare. */
using KnownKinds = std::make_integer_sequence<unsigned, kCounterWhole + 1>;

/* Returns the function that the template makes for the kind of a limit, or the
 * other one. */
template <template <unsigned> class Known, class Function, unsigned... kKinds>
[[gnu::always_inline]] inline Function *known_function(const Policy &policy, uint64_t limit,
                                                       std::integer_sequence<unsigned, kKinds...>,
                                                       Function *other) {
    static constexpr Function *kFunctions[] = {Known<kKinds>::call...};

    if (limit > kCounterKinds[sizeof...(kKinds) - 1].limit_max) { return other; }

    return kFunctions[counter_kind_of(policy, limit)];
}

template <unsigned kKind>
struct ConsumeKnown {
    static void call(Claim *claim, uint64_t now_ms) {
        consume_word<KnownCounter<kKind>, Counter>(claim, now_ms);
    }
};

bool is_admitted(const Claim &claim) { return claim.outcome == Outcome::kAdmitted; }

bool is_queued(const Claim &claim) {
    return claim.policy->algorithm == Algorithm::kLeakyBucket && is_admitted(claim)
           && claim.purpose == Purpose::kConsume;
}

/* Describes a claim to a request of this cost. */
template <class Algorithm>
[[gnu::noinline]] void describe_word(const Claim &claim, uint64_t now_ms, uint64_t cost,
                                     Verdict *verdict) {
    Algorithm algorithm(*claim.policy, time_of(claim, now_ms), claim.limit);

    algorithm.describe(claim.state, cost, verdict);

    if constexpr (std::is_same_v<Algorithm, Bucket>) {
        if (is_queued(claim)) { algorithm.describe_queued(claim.state, claim.cost, verdict); }
    }
}

/* Describes what a key that has a ring has left. */
[[gnu::noinline]] void describe_ring(const Claim &claim, uint64_t now_ms, Verdict *verdict) {
    history_of(claim, now_ms).describe(verdict);
}

template <unsigned kKind>
struct DescribeKnown {
    [[gnu::flatten]] static void call(const Claim &claim, uint64_t now_ms, uint64_t cost,
                                      Verdict *verdict) {
        KnownCounter<kKind> counter(*claim.policy, time_of(claim, now_ms), claim.limit);

        if (!counter.describe(claim.state, cost, verdict)) {
            describe_word<Counter>(claim, now_ms, cost, verdict);
        }
    }
};

[[gnu::noinline, gnu::flatten]] void consume_events_anywhere(Claim *claim, uint64_t now_ms) {
    History history(*claim, time_of(*claim, now_ms));

    conclude(claim, history.update(claim->cost, &claim->rejection));
}

/* Consumes from a ring.  All is inline, so that what is read once stays in
 * registers. */
[[gnu::noinline, gnu::flatten]] void consume_events(Claim *claim, uint64_t now_ms) {
    History history(*claim, time_of(*claim, now_ms), true);
    History::Result result;

    if (!history.update_ready(claim->cost, &result, &claim->rejection)) {
        consume_events_anywhere(claim, now_ms);
        return;
    }

    conclude(claim, result);
}

/* Decides without consuming, whatever that takes. */
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

/* Decides without consuming, as most requests do that only look. */
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
struct LookKnown {
    static void call(Claim *claim, uint64_t now_ms) {
        look_word<KnownCounter<kKind>>(claim, now_ms);
    }
};

Decide *look_of(const Policy &policy, uint64_t limit) {
    if (policy.has_rings() || policy.salt != 0) { return look_anyhow; }

    switch (policy.algorithm) {
    case Algorithm::kCounter:
        return known_function<LookKnown>(policy, limit, KnownKinds(), look_anyhow);
    case Algorithm::kFixed:
        return policy.calendar == Calendar::kNone ? look_word<Fixed> : look_word<CalendarFixed>;
    default:
        return look_word<Bucket>;
    }
}

void look(Claim *claim, uint64_t now_ms) { look_of(*claim->policy, claim->limit)(claim, now_ms); }

/* Returns the share of its limit that the claim has used, 1 for all. */
double share(const Claim &claim, uint64_t now_ms) {
    if (claim.verdict != nullptr) {
        return 1
               - static_cast<double>(claim.verdict->remaining)
                     / static_cast<double>(claim.verdict->limit);
    }

    if (claim.policy->has_rings()) { return history_of(claim, now_ms).share(); }

    return with_algorithm(*claim.policy, time_of(claim, now_ms), claim.limit,
                          [&](const auto &algorithm) { return algorithm.share(claim.state); });
}

bool is_rejected(const Claim &claim) {
    return !is_admitted(claim) && claim.outcome != Outcome::kUndecided;
}

/* Looks at all that are not decided yet, then consumes them; false if any
 * rejected. */
bool consume_all(Claim *claims, size_t n, uint64_t now_ms) {
    bool admitted = true;

    for (size_t i = 0; i < n; i++) {
        if (claims[i].verdict == nullptr) { look(&claims[i], now_ms); }

        admitted &= is_admitted(claims[i]);
    }

    for (size_t i = 0; admitted && i < n; i++) {
        if (!claims[i].consumes()) { continue; }

        consume_of(*claims[i].policy, claims[i].limit)(&claims[i], now_ms);

        if (!is_admitted(claims[i])) {
            /* another request was faster since we looked */
            admitted = false;
            limit_sliding::release(claims, i, now_ms);
        }
    }

    return admitted;
}

size_t longest_wait(const Claim *claims, size_t n, uint64_t now_ms) {
    size_t longest = n;
    uint64_t longest_ms = 0;

    for (size_t i = 0; i < n; i++) {
        if (is_rejected(claims[i])) {
            uint64_t wait_ms = claims[i].retry_after_ms(now_ms);

            if (longest == n || wait_ms > longest_ms) {
                longest = i;
                longest_ms = wait_ms;
            }
        }
    }

    return longest;
}

[[gnu::noinline]] size_t acquire_all(Claim *claims, size_t n, uint64_t now_ms) {
    return consume_all(claims, n, now_ms) ? limit_sliding::tightest(claims, n, now_ms)
                                          : longest_wait(claims, n, now_ms);
}

/* Returns how keys consume that have windows of their own. */
Decide *consume_own_of(const Policy &policy) {
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

Decide *consume_of(const Policy &policy, uint64_t limit) {
    if (policy.salt != 0) { return consume_own_of(policy); }

    switch (policy.algorithm) {
    case Algorithm::kCounter:
        return policy.has_rings() ? consume_events
                                  : known_function<ConsumeKnown>(policy, limit, KnownKinds(),
                                                                 consume_anywhere<Counter, true>);
    case Algorithm::kLog:
        /* most logs have events in pages, which a first attempt would not reach */
        return consume_events_anywhere;
    case Algorithm::kFixed:
        return policy.calendar == Calendar::kNone ? consume_word<Fixed>
                                                  : consume_word<CalendarFixed>;
    default:
        return consume_word<Bucket>;
    }
}

Decide *decide_of(const Policy &policy, uint64_t limit, Purpose purpose) {
    return purpose == Purpose::kConsume ? consume_of(policy, limit) : look_of(policy, limit);
}

size_t acquire(Claim *claims, size_t n, uint64_t now_ms) {
    if (n > 1 || claims->verdict != nullptr) { return acquire_all(claims, n, now_ms); }

    decide_of(*claims->policy, claims->limit, claims->purpose)(claims, now_ms);

    return 0;
}

size_t describing(const Claim *claims, size_t n, uint64_t now_ms) {
    bool admitted = std::all_of(claims, claims + n, is_admitted);

    return admitted ? limit_sliding::tightest(claims, n, now_ms) : longest_wait(claims, n, now_ms);
}

size_t tightest(const Claim *claims, size_t n, uint64_t now_ms) {
    size_t least = 0;
    double most_used = -1;

    for (size_t i = 0; i < n; i++) {
        double used = share(claims[i], now_ms);

        if (used > most_used) {
            most_used = used;
            least = i;
        }
    }

    return least;
}

Verdict Claim::describe(uint64_t now_ms) const {
    Verdict result;

    if (verdict != nullptr) {
        result = *verdict;
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
        known_function<DescribeKnown>(*policy, limit, KnownKinds(),
                                      describe_word<Counter>)(*this, now_ms, wanted, &result);

        if (admitted) {
            /* it may have found room in fewer parts than the state has now */
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

    if (policy->has_rings()) { return rejection.retry_after_ms; }

    return with_algorithm(*policy, time_of(*this, now_ms), limit, [&](const auto &algorithm) {
        return algorithm.retry_after_ms(state, cost);
    });
}

uint64_t Claim::delay_ms(uint64_t now_ms) const {
    if (verdict != nullptr) { return verdict->delay_ms; }

    if (!is_queued(*this)) { return 0; }

    return Bucket(*policy, time_of(*this, now_ms), limit).delay_ms(state, cost);
}

void Claim::forget(uint64_t now_ms) const {
    if (policy->has_rings()) {
        history_of(*this, now_ms).forget();
        return;
    }

    with_algorithm(*policy, time_of(*this, now_ms), limit, [&](const auto &algorithm) {
        table_of(*this, algorithm, now_ms).amend([](uint64_t) { return Copy::kDead; });
    });
}

uint64_t Policy::capacity(uint64_t limit) const {
    /* a burst, of 32 bits, runs off in time under larger limits, of Redis */
    bool has_burst = burst != 0 || algorithm == Algorithm::kLeakyBucket;
    uint64_t bounded = has_burst ? std::min<uint64_t>(limit, UINT32_MAX) : limit;

    return with_algorithm(*this, 0, bounded,
                          [](const auto &algorithm_now) { return algorithm_now.capacity(); });
}

uint64_t Policy::used(const Verdict &verdict) const {
    uint64_t most = capacity(verdict.limit);
    uint64_t taken = most - std::min<uint64_t>(most, verdict.remaining);

    uint64_t excess = (verdict.excess + 999) / 1000;

    /* what a queue has used is what waits in it, and its excess what is beyond the
     * first */
    if (algorithm == Algorithm::kLeakyBucket) {
        return excess == 0 ? taken : std::max(taken, excess + 1);
    }

    return taken + excess;
}

void release(Claim *claims, size_t n, uint64_t now_ms) {
    for (size_t i = 0; i < n; i++) {
        Claim &claim = claims[i];

        if (claim.consumes()) {
            take_back(claim, claim.cost, now_ms);
            claim.purpose = Purpose::kLook;
            decide_of(*claim.policy, claim.limit, claim.purpose)(&claim, now_ms);
            claim.outcome = Outcome::kAdmitted;
        }
    }
}

} // namespace limit_sliding
