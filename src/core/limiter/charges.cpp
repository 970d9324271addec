/* Copyright (C) the limit_sliding authors */

#include "core/limiter/charges.hpp"

#include <algorithm>
#include <cassert>

#include "core/holds/hold.hpp"
#include "core/limiter/debtor.hpp"
#include "core/limiter/history_decision.hpp"
#include "core/rings/ring_rule.hpp"
#include "core/rings/ring_settlement.hpp"
#include "core/rules/word_steps.hpp"

namespace limit_sliding {

namespace {

/* The longest time until a refund.  The time stamps of states wrap a little later. */
constexpr uint64_t kRefundWindows = 128;
constexpr uint64_t kRefundMs = 2 * 60 * 60 * 1000;

[[gnu::noinline]] RingSettlement settlement_of(const Claim &claim, uint64_t now_ms) {
    return RingSettlement(claim, time_of(claim, now_ms));
}

/* Returns the parts of a window by which `clock_ms` is ahead of `other_ms`, rounded; modulo 2^64
 * if it is behind. */
uint64_t parts_between(uint64_t other_ms, uint64_t clock_ms, uint64_t n, uint64_t window_ms) {
    assert(window_ms != 0);
    constexpr int64_t kAheadMaxMs = int64_t{1} << 50;
    const auto ahead = static_cast<int64_t>(clock_ms - other_ms);
    const auto window = static_cast<int64_t>(window_ms);
    const int64_t moved = std::clamp(ahead, -kAheadMaxMs, kAheadMaxMs) * static_cast<int64_t>(n);
    return static_cast<uint64_t>((moved + (moved < 0 ? -window : window) / 2) / window);
}

/* Refunds units of a counter in its newest part.  Returns false if take_back() has to. */
[[gnu::flatten]] bool take_back_soon(const Claim &claim, uint64_t cost, uint64_t now_ms) {
    const Policy &policy = *claim.policy;

    if (policy.algorithm != Algorithm::kCounter || policy.has_rings() || has_key_window(claim)) {
        return false;
    }

    uint64_t epoch = CounterState::epoch_of(time_of(claim, now_ms), policy.window_ms);
    Copy copy = table_of(claim, TagEpoch{epoch, 0}).find_ready();
    uint64_t next;

    return copy.kind == Copy::confirmed
           && Counter::refund_soon(copy.bare_state(), claim.state, cost, &next) && copy.store(next);
}

/* Subtracts refunded units from the debt of the key.  Returns their number. */
uint64_t pay_back(const Claim &claim, uint64_t cost, uint64_t now_ms) {
    return cost == 0 || claim.debts == nullptr || !claim.debts->has_any()
               ? 0
               : Debtor(claim, now_ms).take(cost, false);
}

/* Records the cost of a rejected claim with a ring, and describes the claim again. */
[[gnu::noinline]] void record_attempt(Claim *claim, uint64_t now_ms) {
    RingSettlement(*claim, time_of(*claim, now_ms)).record_rejected(claim->cost);
    (void)RingRule(*claim, time_of(*claim, now_ms)).look(claim->cost, &claim->rejection);
}

/* Records units of a cost, and then of the debt, as far as the history has room for them under the
 * limit in force.  Returns the units of the cost that were recorded; kNever if the zone is full. */
uint64_t fill_history(const Claim &claim, uint64_t cost, uint64_t now_ms) {
    Claim filled = claim;

    filled.limit = claim.pace();
    filled.purpose = Purpose::kConsume;
    filled.standing = Standing::kHere;

    for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
        look_at_history(&filled, now_ms);

        const uint64_t room = describe_history(filled, 0, now_ms).remaining;
        const uint64_t now = std::min(cost, room);
        const uint64_t moved = claim.debts != nullptr && room > now
                                   ? Debtor(filled, now_ms).take(room - now, true)
                                   : 0;

        filled.cost = now + moved;

        if (filled.cost == 0) { return 0; }

        consume_history(&filled, now_ms);

        if (is_admitted(filled)) { return now; }

        if (moved != 0) { Debtor(filled, now_ms).add(moved, false); }

        if (filled.outcome == Outcome::kRefused) { return kNever; }
    }

    return 0;
}

/* Replaces the state of a key by next(state); a new key has the state 0. */
template <class Algorithm, class Next>
Table<WordSlots>::Result change(const Claim &claim, const Algorithm &algorithm, uint64_t now_ms,
                                const Next &next) {
    const ChangeStep step(algorithm, claim, now_ms, next);
    auto table = table_of(claim, algorithm, now_ms);
    Table<WordSlots>::Result result;

    return table.update_ready(step, &result)
               ? result
               : table.update(step, claim.policy->full == WhenFull::kEvict);
}

} // namespace

void take_back(const Claim &claim, uint64_t cost, uint64_t now_ms) {
    if (claim.hold != nullptr) {
        claim.hold->release();
        return;
    }
    if (claim.policy->has_rings()) {
        settlement_of(claim, now_ms).refund(claim.state, cost);
        return;
    }
    with_algorithm(claim, now_ms, [&](const auto &algorithm) {
        table_of(claim, algorithm, now_ms).amend([&](uint64_t state) {
            return algorithm.refund(state, claim.state, cost);
        });
    });
}

void record_rejected(Claim *claim, uint64_t now_ms) {
    if (claim->cost == 0 || claim->standing == Standing::kOwing) { return; }

    if (claim->policy->has_rings()) {
        record_attempt(claim, now_ms);
        return;
    }

    with_algorithm(*claim, now_ms, [&](const auto &algorithm) {
        const auto result = change(*claim, algorithm, now_ms, [&](uint64_t state) {
            return algorithm.record_rejected(state, claim->cost);
        });

        if (result.outcome != Outcome::kAdmitted) { return; }

        claim->state = result.state;
        claim->rejection.retry_after_ms = 0;
    });
}

bool raise_counts(const Claim &claim, uint64_t cost, uint64_t n, uint64_t newest,
                  const uint64_t *count, uint64_t remote_ms, uint64_t now_ms) {
    if (claim.policy->algorithm != Algorithm::kCounter || claim.policy->has_rings()) {
        return false;
    }

    const uint64_t here_ms = time_of(claim, now_ms);
    Counter counter(*claim.policy, here_ms, claim.limit);
    newest += parts_between(remote_ms, here_ms, n, claim.policy->window_ms);
    const uint64_t other = counter.state_of(n, newest, count);

    if (other == 0) { return false; }

    change(claim, counter, now_ms,
           [&](uint64_t state) { return counter.raised(state, other, cost); });
    return true;
}

uint64_t charge(const Claim &claim, uint64_t cost, uint64_t now_ms) {
    uint64_t lost;
    (void)charge(claim, cost, now_ms, &lost);
    return lost;
}

bool charge(const Claim &claim, uint64_t cost, uint64_t now_ms, uint64_t *lost) {
    *lost = 0;
    if (cost == 0) { return true; }

    const uint64_t recorded = fill_history(claim, cost, now_ms);
    const bool has_room = recorded != kNever;

    *lost = has_room ? cost - recorded : cost;
    if (has_room && claim.debts != nullptr) {
        *lost = Debtor(claim, now_ms).add(*lost, recorded != 0);
    }

    return has_room;
}

void refund(const Claim &claim, uint64_t cost, uint64_t since_ms, uint64_t now_ms) {
    uint64_t longest_ms = std::min(kRefundWindows * claim.policy->window_ms, kRefundMs);
    uint64_t given = std::min(cost, claim.cost);
    given -= pay_back(claim, given, now_ms);
    if (given == 0 || since_ms + longest_ms <= now_ms) { return; }
    if (!take_back_soon(claim, given, now_ms)) { take_back(claim, given, now_ms); }
}

bool is_past(const Claim &claim, uint64_t since_ms, uint64_t now_ms) {
    const Policy &policy = *claim.policy;
    const auto number = [&](uint64_t ms) { return policy.window_number(time_of(claim, ms)); };

    return policy.algorithm == Algorithm::kFixed ? number(since_ms) != number(now_ms)
                                                 : since_ms + policy.window_ms <= now_ms;
}

void give_back(const Claim &claim, uint64_t cost, uint64_t now_ms) {
    cost -= pay_back(claim, cost, now_ms);
    if (cost == 0) { return; }

    if (claim.policy->has_rings()) {
        settlement_of(claim, now_ms).give_back(cost);
        return;
    }

    with_algorithm(claim, now_ms, [&](const auto &algorithm) {
        table_of(claim, algorithm, now_ms).amend([&](uint64_t state) {
            return algorithm.give_back(state, cost);
        });
    });
}

void give_back_older(const Claim &claim, uint64_t cost, uint64_t at_ms, uint64_t now_ms) {
    if (claim.policy->algorithm != Algorithm::kCounter || claim.policy->has_rings()) {
        give_back(claim, cost, now_ms);
        return;
    }

    const Counter counter(*claim.policy, time_of(claim, now_ms), claim.limit);
    cost -= pay_back(claim, cost, now_ms);
    table_of(claim, counter, now_ms).amend([&](uint64_t state) {
        return counter.give_back(state, cost, time_of(claim, at_ms));
    });
}

} // namespace limit_sliding
