/* Copyright (C) the limit_sliding authors */

#include "core/settlement.hpp"

#include <algorithm>

#include "core/claim_table.hpp"
#include "core/history.hpp"
#include "core/ring_attempts.hpp"
#include "core/ring_settlement.hpp"

namespace limit_sliding {

namespace {

/* States tell times apart for little longer. */
constexpr uint64_t kRefundWindows = 128;
constexpr uint64_t kRefundMs = 2 * 60 * 60 * 1000;

/* Opens the history of a key, to settle what it has used. */
[[gnu::noinline]] RingSettlement settlement_of(const Claim &claim, uint64_t now_ms) {
    return RingSettlement(claim, time_of(claim, now_ms));
}

/* Returns by how many parts of a window a clock is ahead of another one, to the nearest; they
 * wrap around if it is behind. */
uint64_t parts_between(uint64_t other_ms, uint64_t clock_ms, uint64_t n, uint64_t window_ms) {
    constexpr int64_t kAheadMaxMs = int64_t{1} << 50;
    const auto ahead = static_cast<int64_t>(clock_ms - other_ms);
    const auto window = static_cast<int64_t>(window_ms);
    const int64_t moved = std::clamp(ahead, -kAheadMaxMs, kAheadMaxMs) * static_cast<int64_t>(n);

    return static_cast<uint64_t>((moved + (moved < 0 ? -window : window) / 2) / window);
}

/* Takes back what a counter's key has used in the part that is still the newest one;
 * false: take_back() has to. */
[[gnu::flatten]] bool take_back_soon(const Claim &claim, uint64_t cost, uint64_t now_ms) {
    const Policy &policy = *claim.policy;

    if (policy.algorithm != Algorithm::kCounter || policy.has_rings() || has_own_window(claim)) {
        return false;
    }

    uint64_t epoch = CounterState::epoch_of(time_of(claim, now_ms), policy.window_ms);
    Copy copy = table_of(claim, Epoch{epoch, 0}).find_ready();
    uint64_t next;

    return copy.kind == Copy::confirmed
           && Counter::refund_soon(copy.bare_state(), claim.state, cost, &next) && copy.store(next);
}

/* Changes the state of a key, of one word. */
template <class Algorithm, class Change>
void amend(const Claim &claim, const Algorithm &algorithm, uint64_t now_ms, const Change &change) {
    auto table = table_of(claim, algorithm, now_ms);
    bool owes = false;

    table.amend([&](uint64_t state) {
        owes = algorithm.owes(state);

        return change(state);
    });

    if (owes) { table.keep(step_of(claim, algorithm, 0, now_ms)); }
}

/* Records a cost that a key with a ring has rejected, and describes the key to it
 * anew. */
[[gnu::noinline]] void record_attempt(Claim *claim, uint64_t now_ms) {
    RingAttempts(*claim, time_of(*claim, now_ms)).record(claim->cost);

    (void)History(*claim, time_of(*claim, now_ms)).look(claim->cost, &claim->rejection);
}

} // namespace

void take_back(const Claim &claim, uint64_t cost, uint64_t now_ms) {
    if (claim.policy->has_rings()) {
        settlement_of(claim, now_ms).refund(claim.state, cost);
        return;
    }

    with_algorithm(*claim.policy, time_of(claim, now_ms), claim.limit, [&](const auto &algorithm) {
        amend(claim, algorithm, now_ms,
              [&](uint64_t state) { return algorithm.refund(state, claim.state, cost); });
    });
}

void record_rejected(Claim *claim, uint64_t now_ms) {
    if (claim->cost == 0) { return; }

    if (claim->policy->has_rings()) {
        record_attempt(claim, now_ms);
        return;
    }

    with_algorithm(*claim->policy, time_of(*claim, now_ms), claim->limit,
                   [&](const auto &algorithm) {
                       RejectedStep step{algorithm, claim->cost, *claim, time_of(*claim, now_ms)};
                       auto table = table_of(*claim, algorithm, now_ms);
                       Table<WordSlots>::Result result;

                       if (!table.update_ready(table.find_ready_anywhere(), step, &result)) {
                           result = table.update(step, claim->policy->full == WhenFull::kEvict);
                       }

                       if (result.outcome != Outcome::kAdmitted) { return; }

                       claim->state = result.state;
                       claim->rejection.retry_after_ms = 0;
                   });
}

bool set_counts(const Claim &claim, uint64_t n, uint64_t newest, const uint64_t *count,
                uint64_t told_ms, uint64_t now_ms) {
    if (claim.policy->algorithm != Algorithm::kCounter || claim.policy->has_rings()) {
        return false;
    }

    const uint64_t here_ms = time_of(claim, now_ms);
    Counter counter(*claim.policy, here_ms, claim.limit);
    newest += parts_between(told_ms, here_ms, n, claim.policy->window_ms);
    const uint64_t state = counter.state_of(n, newest, count);

    if (state == 0) { return false; }

    ReplaceStep<Counter> step(counter, state, claim, time_of(claim, now_ms));
    auto table = table_of(claim, counter, now_ms);
    Table<WordSlots>::Result result;

    if (!table.update_ready(table.find_ready_anywhere(), step, &result)) {
        table.update(step, claim.policy->full == WhenFull::kEvict);
    }

    return true;
}

uint64_t charge(const Claim &claim, uint64_t cost, uint64_t now_ms) {
    if (cost == 0) { return 0; }

    if (claim.policy->has_rings()) { return settlement_of(claim, now_ms).charge(cost); }

    return with_algorithm(
        *claim.policy, time_of(claim, now_ms), claim.limit, [&](const auto &algorithm) {
            ChargeStep step{algorithm, cost, claim, time_of(claim, now_ms)};
            auto table = table_of(claim, algorithm, now_ms);
            Table<WordSlots>::Result result;

            if (!table.update_ready(table.find_ready_anywhere(), step, &result)) {
                result = table.update(step, claim.policy->full == WhenFull::kEvict);
            }

            if (result.outcome != Outcome::kAdmitted) { return cost; }

            if (algorithm.owes(result.state)) { table.keep(step); }

            return step.lost;
        });
}

void refund(const Claim &claim, uint64_t cost, uint64_t since_ms, uint64_t now_ms) {
    uint64_t longest_ms = std::min(kRefundWindows * claim.policy->window_ms, kRefundMs);

    if (cost == 0 || since_ms + longest_ms <= now_ms) { return; }

    uint64_t given = std::min(cost, claim.cost);

    if (!take_back_soon(claim, given, now_ms)) { take_back(claim, given, now_ms); }
}

void give_back(const Claim &claim, uint64_t cost, uint64_t now_ms) {
    if (cost == 0) { return; }

    if (claim.policy->has_rings()) {
        settlement_of(claim, now_ms).give_back(cost);
        return;
    }

    with_algorithm(*claim.policy, time_of(claim, now_ms), claim.limit, [&](const auto &algorithm) {
        amend(claim, algorithm, now_ms,
              [&](uint64_t state) { return algorithm.give_back(state, cost); });
    });
}

} // namespace limit_sliding
