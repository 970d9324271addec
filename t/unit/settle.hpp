/* Copyright (C) the limit_sliding authors */

/*
 * What a key has used when it may owe, by the rule of docs/algorithms.md, as
 * straightforward as can be, under one limit: counter in a word, fixed, and the
 * buckets, of which nothing is rounded.
 */

#pragma once

#include "counter_rule.hpp"
#include "support.hpp"

static const uint64_t settle_limits[] = {1, 3, 10, 100, 1000, 100000, kLimitMax};
static const uint64_t settle_windows_ms[]
    = {kWindowMinMs, SECOND_MS, MINUTE_MS, 60 * MINUTE_MS, DAY_MS, kWindowMaxMs};

static const struct {
    Algorithm algorithm;
    unsigned precision;
    int strict;
    unsigned burst; /* in limits */
} settle_kinds[] = {
    {Algorithm::kCounter, 0, 0, 0},     {Algorithm::kCounter, 1, 0, 0},
    {Algorithm::kCounter, 0, 1, 0},     {Algorithm::kCounter, 1, 1, 0},
    {Algorithm::kFixed, 0, 0, 0},       {Algorithm::kTokenBucket, 0, 0, 0},
    {Algorithm::kTokenBucket, 0, 0, 3}, {Algorithm::kLeakyBucket, 0, 0, 0},
    {Algorithm::kLeakyBucket, 0, 0, 2},
};

static Policy policy_of(size_t kind, uint64_t window_ms, uint64_t limit) {
    Policy policy = evicting(window_ms);
    uint64_t burst = settle_kinds[kind].burst * limit;

    policy.algorithm = settle_kinds[kind].algorithm;
    policy.precision = settle_kinds[kind].precision;
    policy.strict = settle_kinds[kind].strict;
    policy.burst = (uint32_t)(burst < kLimitMax ? burst : kLimitMax);

    return policy;
}

template <class Visit>
static void each_subject(const Visit &visit) {
    for (size_t kind = 0; kind < LENGTH(settle_kinds); kind++) {
        for (uint64_t window_ms : settle_windows_ms) {
            for (uint64_t limit : settle_limits) {
                /* buckets that lose more than 2^22 requests a ms are less exact */
                if (limit >> 22 < window_ms
                    || settle_kinds[kind].algorithm == Algorithm::kCounter) {
                    visit(policy_of(kind, window_ms, limit), limit);
                }
            }
        }
    }
}

struct owing_model_t {
    Policy policy;
    uint64_t limit;
    uint64_t capacity;

    rule_t rule;       /* of a counter; while `owes`, it has been paid and given back */
    int owes;          /* it has used `level` in window `since`, of which the limit runs off */
    uint64_t since;    /* in each window; of fixed as well */
    rule_wide_t level; /* requests; of a bucket x w, at `since` in ms */

    /* That of an admission, by which it can be given back. */
    struct mark_t {
        int64_t n;
        int64_t part;
        uint64_t ms;
        uint64_t cost;
    };

    owing_model_t(const Policy &p, uint64_t l)
        : policy(p), limit(l), capacity(p.capacity(l)), rule{.window_ms = p.window_ms,
                                                             .precision = p.precision,
                                                             .strict = p.strict,
                                                             .state = {}},
          owes(0), since(0), level(0) {}

    bool is_counter() const { return policy.algorithm == Algorithm::kCounter; }
    bool is_bucket() const { return !is_counter() && policy.algorithm != Algorithm::kFixed; }
    rule_wide_t full() const { return (rule_wide_t)capacity * policy.window_ms; }

    /* The most that may be used, x w. */
    rule_wide_t most() const {
        uint64_t w = policy.window_ms;

        if (!is_bucket()) { return (rule_wide_t)limit * 1001 * w; }

        return full() + (rule_wide_t)limit * (64 * w < 1ull << 32 ? 64 * w : 1ull << 32);
    }

    /* The requests of which each window takes the limit. */
    rule_wide_t left(uint64_t now_ms) const {
        rule_wide_t gone = (rule_wide_t)limit * (now_ms / policy.window_ms - since);

        return level > gone ? level - gone : 0;
    }

    /* A counter whose debt ends in the present window, or did in one before. */
    rule_t paid() const {
        rule_t one = rule;

        one.precision = 1;
        if (level == 0) { return one; }

        uint64_t windows = (uint64_t)((level - 1) / limit);

        one.state = {.n = 1, .newest = (int64_t)(since + windows), .count = {0}};
        one.state.count[0] = limit;
        one.state.count[1] = (uint64_t)(level - (rule_wide_t)windows * limit);

        return one;
    }

    /* What is used, x w. */
    rule_wide_t used(uint64_t now_ms) const {
        if (is_bucket()) {
            rule_wide_t gone = (rule_wide_t)limit * (now_ms - since);

            return level > gone ? level - gone : 0;
        }

        if (!is_counter() || is_owing(now_ms)) {
            rule_wide_t now = left(now_ms);

            /* fixed windows do not take it from each other, but for a debt */
            return !is_counter() && !owes && now_ms / policy.window_ms != since
                       ? 0
                       : now * policy.window_ms;
        }

        if (owes) {
            rule_t one = paid();

            return rule_used_at(&one, now_ms, limit);
        }

        return rule_used_at(&rule, now_ms, limit);
    }

    bool fits(uint64_t now_ms, uint64_t cost) const {
        return cost <= capacity && used(now_ms) + (rule_wide_t)cost * policy.window_ms <= full();
    }

    /* Makes so much, x w, that which is used. */
    void use(uint64_t now_ms, rule_wide_t now) {
        since = is_bucket() ? now_ms : now_ms / policy.window_ms;
        level = is_bucket() ? now : now / policy.window_ms;
        owes = now > full();

        if (is_counter() && !owes) {
            rule.state = {};
            rule.state = rule_view(&rule, now_ms, limit).state;
            rule.state.count[rule.state.n] = (uint64_t)level;
        }
    }

    /* The parts of a counter that does not owe now. */
    rule_state_t parts(uint64_t now_ms) const {
        rule_t one = owes ? paid() : rule;
        rule_state_t state = rule_view(&one, now_ms, limit).state;

        if (owes && state.count[0] + state.count[1] == 0) {
            one = rule;
            one.state = {};
            state = rule_view(&one, now_ms, limit).state;
        }

        return state;
    }

    bool is_owing(uint64_t now_ms) const {
        return owes && (is_bucket() ? used(now_ms) > full() : left(now_ms) > limit);
    }

    /* Records a cost, whatever the limit says; returns what is lost. */
    uint64_t charge(uint64_t now_ms, uint64_t cost) {
        rule_wide_t w = policy.window_ms;
        rule_wide_t now = used(now_ms);

        if (is_counter() && !is_owing(now_ms)) {
            rule_state_t state = parts(now_ms);

            now = 0;
            for (int64_t i = 1; i <= state.n; i++) {
                now += state.count[i] * w;
            }

            if (now + cost * w <= full()) {
                state.count[state.n] += cost;
                rule.state = fitting(state);
                owes = 0;
                return 0;
            }
        }

        now += cost * w;

        rule_wide_t lost = now > most() ? (now - most() + w - 1) / w : 0;

        use(now_ms, now - lost * w);

        return (uint64_t)lost;
    }

    /* A state of the first kind that has room for it. */
    rule_state_t fitting(const rule_state_t &state) const {
        const rule_kind_t *kind = rule_kinds;

        while (kind->parts != state.n) {
            kind++;
        }

        for (;; kind++) {
            rule_state_t other = rule_converted(&state, kind->parts);

            if (rule_fits(&other, kind)) { return other; }
        }
    }

    mark_t admit(uint64_t now_ms, uint64_t cost) {
        if (is_counter() && !is_owing(now_ms)) {
            rule.state = parts(now_ms);
            rule.state.count[rule.state.n] += cost;
            owes = 0;
        } else {
            use(now_ms, used(now_ms) + (rule_wide_t)cost * policy.window_ms);
        }

        return {rule.state.n, rule.state.newest, now_ms, cost};
    }

    /* Takes back some of an admission; not of a bucket, where it depends on what
     * else was admitted. */
    void refund(uint64_t now_ms, const mark_t &mark, uint64_t cost) {
        if (cost == 0) { return; }

        if (is_owing(now_ms)) {
            give_back(now_ms, cost);
        } else if (is_counter()) {
            rule.state = own();
            level = 0;
            rule_give_back(&rule, mark.n, mark.part, cost);
        } else if (!owes && mark.ms / policy.window_ms == since) {
            level -= level < cost ? level : cost;
        }
    }

    /* Takes back what was used last. */
    void give_back(uint64_t now_ms, uint64_t cost) {
        rule_wide_t now = used(now_ms);
        rule_wide_t given = (rule_wide_t)cost * policy.window_ms;

        if (!is_counter() || is_owing(now_ms)) {
            use(now_ms, now > given ? now - given : 0);
            return;
        }

        rule.state = own();
        level = 0;

        for (int64_t i = rule.state.n; i >= 0 && rule.state.n > 0; i--) {
            uint64_t *count = &rule.state.count[i];
            uint64_t taken = *count < cost ? *count : cost;

            *count -= taken;
            cost -= taken;
        }
    }

private:
    /* A counter's state as it was made. */
    rule_state_t own() const { return owes ? paid().state : rule.state; }
};
