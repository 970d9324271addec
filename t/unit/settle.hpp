/* Copyright (C) the limit_sliding authors */

/*
 * Keys that may owe, and a model of them that knows no format of debts: the rule of
 * docs/algorithms.md, over the history of a key that never owes.  Who includes this defines
 * CHECK(condition).
 */

#pragma once

#include "core/facts/debts.hpp"
#include "core/policy/calendar.hpp"
#include "core/rules/counter_kinds.hpp"
#include "support.hpp"

#include <algorithm>

static const uint64_t settle_limits[] = {1, 3, 10, 100, 1000, 100000, kLimitMax};
static const uint64_t settle_windows_ms[]
    = {kWindowMinMs, SECOND_MS, MINUTE_MS, 60 * MINUTE_MS, DAY_MS, kWindowMaxMs};

static const struct {
    Algorithm algorithm;
    unsigned precision;
    bool strict;
    unsigned burst; /* in limits */
    Calendar calendar;
} settle_kinds[] = {
    {Algorithm::kCounter, 0, false, 0, Calendar::kNone},
    {Algorithm::kCounter, 1, false, 0, Calendar::kNone},
    {Algorithm::kCounter, 0, true, 0, Calendar::kNone},
    {Algorithm::kCounter, 4, false, 0, Calendar::kNone},
    {Algorithm::kCounter, 10, true, 0, Calendar::kNone},
    {Algorithm::kLog, 0, false, 0, Calendar::kNone},
    {Algorithm::kFixed, 0, false, 0, Calendar::kNone},
    {Algorithm::kFixed, 0, false, 0, Calendar::kMonth},
    {Algorithm::kTokenBucket, 0, false, 0, Calendar::kNone},
    {Algorithm::kTokenBucket, 0, false, 3, Calendar::kNone},
    {Algorithm::kLeakyBucket, 0, false, 0, Calendar::kNone},
    {Algorithm::kLeakyBucket, 0, false, 2, Calendar::kNone},
};

static Policy policy_of(size_t kind, uint64_t window_ms, uint64_t limit) {
    Policy policy = evicting(window_ms);
    uint64_t burst = settle_kinds[kind].burst * limit;

    policy.algorithm = settle_kinds[kind].algorithm;
    policy.precision = settle_kinds[kind].precision;
    policy.strict = settle_kinds[kind].strict;
    policy.burst = static_cast<uint32_t>(std::min(burst, kLimitMax));
    policy.calendar = settle_kinds[kind].calendar;
    policy.zone_limit = limit;

    return policy;
}

/* Returns true if the limit and the window are valid.  Windows of the calendar have one length. */
static bool is_subject(const Policy &policy, uint64_t limit) {
    return limit <= policy.limit_max()
           && (policy.calendar == Calendar::kNone || policy.window_ms == 30 * DAY_MS);
}

/* Calls visit(policy, limit) for policies of all kinds. */
template <class Visit>
static void each_subject(const Visit &visit) {
    for (size_t kind = 0; kind < LENGTH(settle_kinds); kind++) {
        for (uint64_t window_ms : settle_windows_ms) {
            for (uint64_t limit : settle_limits) {
                Policy policy = policy_of(kind, window_ms, limit);

                if (is_subject(policy, limit)) { visit(policy, limit); }
            }
        }
    }
}

/* The limit of a request: that of its place, or a limit of the key's own. */
struct settle_limit_t {
    uint64_t limit;
    bool is_own;
};

/* A key in a zone of its own. */
class settle_key_t {
public:
    settle_key_t(const Policy &policy, bool may_owe, size_t bytes = kZoneAlign + 16 * 1024)
        : policy_(policy), zone_(make_zone_for(&policy_, bytes)),
          debts_(may_owe ? make_debts() : nullptr) {}

    settle_key_t(const settle_key_t &) = delete;

    ~settle_key_t() {
        free(zone_);
        free(debts_);
    }

    Zone *zone() const { return zone_; }
    const Policy &policy() const { return policy_; }

    Claim claim(const settle_limit_t &by, uint64_t cost,
                Purpose purpose = Purpose::kConsume) const {
        Claim claim = claim_of(zone_, &policy_, 1, static_cast<uint32_t>(by.limit), 0);

        claim.limit = by.limit;
        claim.is_own = by.is_own;
        claim.cost = std::min(cost, kCostMax);
        claim.purpose = purpose;
        claim.debts = debts_;

        return claim;
    }

    Claim acquire(const settle_limit_t &by, uint64_t cost, uint64_t now_ms,
                  Purpose purpose = Purpose::kConsume) const {
        Claim decided = claim(by, cost, purpose);

        limit_sliding::acquire(&decided, 1, now_ms);

        return decided;
    }

    Claim look(const settle_limit_t &by, uint64_t cost, uint64_t now_ms) const {
        return acquire(by, cost, now_ms, Purpose::kLook);
    }

    bool would_admit(const settle_limit_t &by, uint64_t cost, uint64_t now_ms) const {
        return look(by, cost, now_ms).outcome == Outcome::kAdmitted;
    }

    uint64_t used(const settle_limit_t &by, uint64_t now_ms) const {
        return policy_.used(look(by, 0, now_ms).describe(now_ms));
    }

private:
    Policy policy_;
    Zone *zone_;
    Debts *debts_;
};

static inline bool is_bucket(const Policy &policy) {
    return policy.algorithm == Algorithm::kTokenBucket
           || policy.algorithm == Algorithm::kLeakyBucket;
}

class settle_model_t {
public:
    explicit settle_model_t(const Policy &policy) : history_(policy, false) {}

    /* The units that are owed at a time. */
    uint64_t owed(const settle_limit_t &by, uint64_t now_ms) const {
        const uint64_t left = units_ - std::min(units_, payments(now_ms) * pace(by));

        return std::min(left, Debts::kWindowsMax * pace(by));
    }

    /* A debt that was seen to be paid, or to be the longest one, stays so. */
    void look(const settle_limit_t &by, uint64_t now_ms) {
        const uint64_t left = owed(by, now_ms);

        if (left == 0 || left == Debts::kWindowsMax * pace(by)) {
            since_ = last_payment(now_ms);
            units_ = left;
        }
    }

    uint64_t used(const settle_limit_t &by, uint64_t now_ms) const {
        return history_.used(by, now_ms) + owed(by, now_ms);
    }

    bool fits(const settle_limit_t &by, uint64_t cost, uint64_t now_ms) const {
        const uint64_t wanted = cost + owed(by, now_ms);

        return wanted <= capacity(by) && history_.would_admit(by, wanted, now_ms);
    }

    uint64_t remaining(const settle_limit_t &by, uint64_t now_ms) const {
        const uint64_t left = history_.look(by, 0, now_ms).describe(now_ms).remaining;

        return left - std::min(left, owed(by, now_ms));
    }

    /* Records an admission; the result is for refund(). */
    Claim admit(const settle_limit_t &by, uint64_t cost, uint64_t now_ms) {
        const Claim claim = history_.acquire(by, cost + owed(by, now_ms), now_ms);

        CHECK(claim.outcome == Outcome::kAdmitted);
        units_ = 0;

        return claim;
    }

    /* Records a cost, whatever the limit says.  Returns the units that are lost. */
    uint64_t charge(const settle_limit_t &by, uint64_t cost, uint64_t now_ms) {
        const settle_limit_t in_force = {pace(by), by.is_own};
        const uint64_t room = history_.look(in_force, 0, now_ms).describe(now_ms).remaining;
        const uint64_t most = std::min(Debts::kUnitsMax, Debts::kWindowsMax * pace(by));
        const uint64_t before = owed(by, now_ms);
        const uint64_t now = std::min(cost + before, room);

        if (now != 0) {
            CHECK(history_.acquire(in_force, now, now_ms).outcome == Outcome::kAdmitted);
        }

        /* units that are owed already are not lost if the limit is lowered */
        const uint64_t kept = before - std::min(before, now - std::min(now, cost));
        const uint64_t more = cost - std::min(cost, now);
        const uint64_t added = std::min(more, most - std::min(most, kept));

        if (before == 0 || room != 0) {
            const uint64_t later
                = std::max(before == 0 ? 0 : last_payment(now_ms), ends(by, now_ms));

            since_ = std::min(later, part_at(now_ms) + Debts::kWaitMax);
        } else {
            since_ = last_payment(now_ms);
        }

        units_ = kept + added;

        return more - added;
    }

    void refund(const settle_limit_t &by, Claim claim, uint64_t cost, uint64_t since_ms,
                uint64_t now_ms) {
        limit_sliding::refund(claim, pay(by, cost, now_ms), since_ms, now_ms);
    }

    void give_back(const settle_limit_t &by, uint64_t cost, uint64_t now_ms) {
        limit_sliding::give_back(history_.claim(by, 0), pay(by, cost, now_ms), now_ms);
    }

    uint64_t capacity(const settle_limit_t &by) const { return policy().capacity(by.limit); }
    const Policy &policy() const { return history_.policy(); }

    uint64_t pace(const settle_limit_t &by) const {
        return by.is_own ? by.limit : policy().zone_limit;
    }

private:
    bool is_fixed() const { return policy().algorithm == Algorithm::kFixed; }

    /* Returns the number of the present eighth of a window; of a fixed window, of its first. */
    uint64_t part_at(uint64_t time_ms) const {
        if (!is_fixed()) { return time_ms * 8 / policy().window_ms; }

        return 8
               * (policy().calendar == Calendar::kNone
                      ? time_ms / policy().window_ms
                      : calendar_number(policy().calendar, nullptr, time_ms));
    }

    /* Returns how many windows have passed since the part since_. */
    uint64_t payments(uint64_t now_ms) const {
        const uint64_t part = part_at(now_ms);

        return part > since_ ? (part - since_) / 8 : 0;
    }

    uint64_t last_payment(uint64_t now_ms) const { return since_ + 8 * payments(now_ms); }

    /* Returns the part in which a history that is full now has nothing left. */
    uint64_t ends(const settle_limit_t &by, uint64_t now_ms) const {
        if (is_fixed()) { return part_at(now_ms) + 8; }

        const uint64_t units = is_bucket(policy()) ? policy().capacity(pace(by)) : pace(by);
        const Wide level = Wide{units} * policy().window_ms;
        const uint64_t ends_ms = now_ms + static_cast<uint64_t>((level + pace(by) - 1) / pace(by));

        return (ends_ms * 8 + policy().window_ms - 1) / policy().window_ms;
    }

    /* Takes units off the debt; returns the rest. */
    uint64_t pay(const settle_limit_t &by, uint64_t cost, uint64_t now_ms) {
        const uint64_t before = owed(by, now_ms);
        const uint64_t paid = std::min(cost, before);

        if (paid != 0) {
            since_ = last_payment(now_ms);
            units_ = before - paid;
        }

        return cost - paid;
    }

    settle_key_t history_;
    uint64_t units_ = 0;
    uint64_t since_ = 0; /* part of a window; one payment is made a window after it */
};
