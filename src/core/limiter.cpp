/*
 * Copyright (C) the limit_sliding authors
 */

#include <algorithm>
#include <type_traits>

#include "core/algorithm.hpp"
#include "core/history.hpp"
#include "core/limiter.h"
#include "core/table.hpp"
#include "core/zone.hpp"

using limit_sliding::AnyWordStep;
using limit_sliding::Bucket;
using limit_sliding::Copy;
using limit_sliding::Counter;
using limit_sliding::counts_of;
using limit_sliding::Fixed;
using limit_sliding::has_rings;
using limit_sliding::History;
using limit_sliding::Table;
using limit_sliding::with_algorithm;
using limit_sliding::WordSlots;
using limit_sliding::WordStep;

namespace {

/* The caller's time in the claim's zone. */
uint64_t time_of(const limit_sliding_claim_t &claim, uint64_t now_ms)
{
    return now_ms + claim.zone->offset_ms;
}

template <class Algorithm>
Table<WordSlots> table_of(const limit_sliding_claim_t &claim,
                          const Algorithm &algorithm)
{
    return Table<WordSlots>(WordSlots(claim.zone), claim.zone->pairs,
                            counts_of(claim), claim.hash, algorithm.epoch());
}

/* Out of line: it is large, and beside the algorithms of one word. */
[[gnu::noinline]] History history_of(const limit_sliding_claim_t &claim,
                                     uint64_t now_ms)
{
    return History(claim, time_of(claim, now_ms));
}

template <class Result>
void conclude(limit_sliding_claim_t *claim, const Result &result)
{
    claim->state = result.state;
    claim->outcome = result.outcome;
}

/*
 * Out of line, and with everything made anew: what most requests do has its
 * values in registers then, none of them in memory for a call, nor saved.
 */
template <class Algorithm>
[[gnu::noinline]] void consume_anywhere(limit_sliding_claim_t *claim,
                                        uint64_t now_ms)
{
    Algorithm algorithm(*claim->policy, time_of(*claim, now_ms), claim->limit);

    if constexpr (std::is_same_v<Algorithm, Bucket>) {
        Table<WordSlots>::Result result;

        /* it may be its state that took more */
        if (table_of(*claim, algorithm)
                .update_ready(AnyWordStep<Algorithm>(algorithm, claim->cost),
                              &result)) {
            conclude(claim, result);
            return;
        }
    }

    conclude(claim, table_of(*claim, algorithm)
                        .update(WordStep{algorithm, claim->cost},
                                claim->policy->full == LIMIT_SLIDING_EVICT));
}

/* Each out of line: none saves registers for what another does. */
template <class Algorithm>
[[gnu::noinline]] void consume_word(limit_sliding_claim_t *claim,
                                    uint64_t now_ms)
{
    Algorithm algorithm(*claim->policy, time_of(*claim, now_ms), claim->limit);
    Table<WordSlots>::Result result;

    if (!table_of(*claim, algorithm)
             .update_ready(WordStep{algorithm, claim->cost}, &result)) {
        consume_anywhere<Algorithm>(claim, now_ms);
        return;
    }

    conclude(claim, result);
}

[[gnu::noinline, gnu::flatten]] void consume_events_anywhere(
    limit_sliding_claim_t *claim, uint64_t now_ms)
{
    History history(*claim, time_of(*claim, now_ms));

    conclude(claim, history.update(claim->cost));
}

/* All inline, so that what is read once stays in registers. */
[[gnu::noinline, gnu::flatten]] void consume_events(
    limit_sliding_claim_t *claim, uint64_t now_ms)
{
    History history(*claim, time_of(*claim, now_ms), true);
    History::Result result;

    if (!history.update_ready(claim->cost, &result)) {
        consume_events_anywhere(claim, now_ms);
        return;
    }

    conclude(claim, result);
}

[[gnu::always_inline]] inline void consume(limit_sliding_claim_t *claim,
                                           uint64_t now_ms)
{
    /* most logs have events elsewhere, which a first attempt would not reach */
    if (claim->policy->algorithm == LIMIT_SLIDING_LOG) {
        consume_events_anywhere(claim, now_ms);
        return;
    }

    if (has_rings(*claim->policy)) {
        consume_events(claim, now_ms);
        return;
    }

    switch (claim->policy->algorithm) {
    case LIMIT_SLIDING_FIXED:
        consume_word<Fixed>(claim, now_ms);
        return;
    case LIMIT_SLIDING_TOKEN_BUCKET:
    case LIMIT_SLIDING_LEAKY_BUCKET:
        consume_word<Bucket>(claim, now_ms);
        return;
    default:
        consume_word<Counter>(claim, now_ms);
    }
}

/* Decides without consuming. */
void look(limit_sliding_claim_t *claim, uint64_t now_ms)
{
    if (has_rings(*claim->policy)) {
        claim->outcome = history_of(*claim, now_ms).look(claim->cost);
        return;
    }

    with_algorithm(*claim->policy, time_of(*claim, now_ms), claim->limit,
                   [&](const auto &algorithm) {
                       uint64_t next;

                       claim->state = table_of(*claim, algorithm).look_state();
                       claim->outcome
                           = algorithm.admit(claim->state, claim->cost, &next)
                                 ? LIMIT_SLIDING_ADMITTED
                                 : LIMIT_SLIDING_REJECTED;
                   });
}

void refund(const limit_sliding_claim_t &claim, uint64_t now_ms)
{
    if (has_rings(*claim.policy)) {
        history_of(claim, now_ms).refund(claim.state, claim.cost);
        return;
    }

    with_algorithm(*claim.policy, time_of(claim, now_ms), claim.limit,
                   [&](const auto &algorithm) {
                       table_of(claim, algorithm).amend([&](uint64_t state) {
                           return algorithm.refund(state, claim.state,
                                                   claim.cost);
                       });
                   });
}

/* What the claim has used of its limit, 1 for all. */
double share(const limit_sliding_claim_t &claim, uint64_t now_ms)
{
    if (claim.verdict != nullptr) {
        return 1
               - static_cast<double>(claim.verdict->remaining)
                     / claim.verdict->limit;
    }

    if (has_rings(*claim.policy)) {
        return history_of(claim, now_ms).share();
    }

    return with_algorithm(
        *claim.policy, time_of(claim, now_ms), claim.limit,
        [&](const auto &algorithm) { return algorithm.share(claim.state); });
}

bool is_admitted(const limit_sliding_claim_t &claim)
{
    return claim.outcome == LIMIT_SLIDING_ADMITTED;
}

bool is_rejected(const limit_sliding_claim_t &claim)
{
    return !is_admitted(claim) && claim.outcome != LIMIT_SLIDING_UNDECIDED;
}

bool is_queued(const limit_sliding_claim_t &claim)
{
    return claim.policy->algorithm == LIMIT_SLIDING_LEAKY_BUCKET
           && is_admitted(claim) && !claim.look;
}

bool consumes(const limit_sliding_claim_t &claim)
{
    return !claim.look && claim.verdict == nullptr;
}

/*
 * Looks at all that are not decided yet, then consumes them; false if any
 * rejected.
 */
bool consume_all(limit_sliding_claim_t *claims, size_t n, uint64_t now_ms)
{
    bool admitted = true;

    for (size_t i = 0; i < n; i++) {
        if (claims[i].verdict == nullptr) {
            look(&claims[i], now_ms);
        }

        admitted &= is_admitted(claims[i]);
    }

    for (size_t i = 0; admitted && i < n; i++) {
        if (!consumes(claims[i])) {
            continue;
        }

        consume(&claims[i], now_ms);

        if (!is_admitted(claims[i])) {
            /* another request was faster since we looked */
            admitted = false;
            limit_sliding_release(claims, i, now_ms);
        }
    }

    return admitted;
}

size_t longest_wait(const limit_sliding_claim_t *claims, size_t n,
                    uint64_t now_ms)
{
    size_t longest = n;
    uint64_t longest_ms = 0;

    for (size_t i = 0; i < n; i++) {
        if (is_rejected(claims[i])) {
            limit_sliding_verdict_t verdict;

            limit_sliding_claim_describe(&claims[i], now_ms, &verdict);

            if (longest == n || verdict.retry_after_ms > longest_ms) {
                longest = i;
                longest_ms = verdict.retry_after_ms;
            }
        }
    }

    return longest;
}

/* Out of line, for the sake of requests with one limit. */
[[gnu::noinline]] size_t acquire_all(limit_sliding_claim_t *claims, size_t n,
                                     uint64_t now_ms)
{
    return consume_all(claims, n, now_ms)
               ? limit_sliding_tightest(claims, n, now_ms)
               : longest_wait(claims, n, now_ms);
}

} // namespace

size_t limit_sliding_acquire(limit_sliding_claim_t *claims, size_t n,
                             uint64_t now_ms)
{
    if (n == 1 && !claims->look) {
        consume(claims, now_ms);
        return 0;
    }

    return acquire_all(claims, n, now_ms);
}

size_t limit_sliding_describing(const limit_sliding_claim_t *claims, size_t n,
                                uint64_t now_ms)
{
    bool admitted = std::all_of(claims, claims + n, is_admitted);

    return admitted ? limit_sliding_tightest(claims, n, now_ms)
                    : longest_wait(claims, n, now_ms);
}

void limit_sliding_forget(const limit_sliding_claim_t *claim, uint64_t now_ms)
{
    if (has_rings(*claim->policy)) {
        history_of(*claim, now_ms).forget();
        return;
    }

    with_algorithm(*claim->policy, time_of(*claim, now_ms), claim->limit,
                   [&](const auto &algorithm) {
                       table_of(*claim, algorithm).amend([](uint64_t) {
                           return Copy::kDead;
                       });
                   });
}

void limit_sliding_release(limit_sliding_claim_t *claims, size_t n,
                           uint64_t now_ms)
{
    for (size_t i = 0; i < n; i++) {
        if (consumes(claims[i])) {
            refund(claims[i], now_ms);
            look(&claims[i], now_ms);
            claims[i].look = 1;
            claims[i].outcome = LIMIT_SLIDING_ADMITTED;
        }
    }
}

size_t limit_sliding_tightest(const limit_sliding_claim_t *claims, size_t n,
                              uint64_t now_ms)
{
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

void limit_sliding_claim_describe(const limit_sliding_claim_t *claim,
                                  uint64_t now_ms,
                                  limit_sliding_verdict_t *verdict)
{
    if (claim->verdict != nullptr) {
        *verdict = *claim->verdict;
        return;
    }

    if (claim->outcome == LIMIT_SLIDING_REFUSED) {
        verdict->limit = claim->limit;
        verdict->remaining = 0;
        verdict->excess = 0;
        verdict->retry_after_ms = claim->state;
        verdict->reset_ms = claim->state;
        verdict->delay_ms = 0;
        return;
    }

    bool admitted = is_admitted(*claim);
    uint32_t cost = admitted ? 0 : claim->cost;

    if (has_rings(*claim->policy)) {
        history_of(*claim, now_ms).describe(cost, verdict);

        if (!admitted && verdict->retry_after_ms == 0) {
            /* others have expired, or were evicted, since the decision */
            verdict->retry_after_ms = 1;
        }

        return;
    }

    with_algorithm(*claim->policy, time_of(*claim, now_ms), claim->limit,
                   [&](const auto &algorithm) {
                       algorithm.describe(claim->state, cost, verdict);
                   });

    if (is_queued(*claim)) {
        Bucket(*claim->policy, time_of(*claim, now_ms), claim->limit)
            .describe_queued(claim->state, claim->cost, verdict);
    }
}

uint64_t limit_sliding_claim_delay_ms(const limit_sliding_claim_t *claim,
                                      uint64_t now_ms)
{
    if (claim->verdict != nullptr) {
        return claim->verdict->delay_ms;
    }

    if (!is_queued(*claim)) {
        return 0;
    }

    return Bucket(*claim->policy, time_of(*claim, now_ms), claim->limit)
        .delay_ms(claim->state, claim->cost);
}
