/* Copyright (C) the limit_sliding authors */

/*
 * Steps of the history of a key that may owe, beside the model of settle.hpp, and what must
 * hold after each.  Who includes this defines CHECK(condition).
 */

#pragma once

#include "settle.hpp"

/* ---- one key, and its model ---- */

struct subject_t {
    Zone *zone;
    owing_model_t model;
    uint64_t random;
    uint64_t now_ms;
    rule_wide_t rounded = 0; /* what charges of a bucket may have lost, x w */

    subject_t(const Policy &policy, uint64_t limit, uint64_t seed)
        : zone(make_zone_for(&policy, PAIR_BYTES)), model(policy, limit), random(seed), now_ms(0) {
        now_ms = random_next(&random) >> 22;
    }

    ~subject_t() { free(zone); }

    Claim claim(uint64_t cost, Purpose purpose = Purpose::kLook) {
        Claim claim = claim_of(zone, &model.policy, 1, (uint32_t)model.limit, 0);

        claim.cost = cost;
        claim.purpose = purpose;

        return claim;
    }

    Claim look(uint64_t cost, uint64_t at_ms) {
        Claim look = claim(cost);

        limit_sliding::acquire(&look, 1, at_ms);

        return look;
    }

    uint64_t used(uint64_t at_ms) {
        Verdict verdict = look(0, at_ms).describe(at_ms);

        return model.policy.used(verdict);
    }

    /* By how much the states of large limits may differ from the model, x w: what
     * they round. */
    rule_wide_t slack() const {
        if (model.is_bucket()) { return (model.full() >> 18) + 2 + rounded; }

        return model.limit <= kNarrowMax ? 0 : (model.limit >> 11) * model.policy.window_ms;
    }
};

static rule_wide_t below(rule_wide_t a, rule_wide_t b) { return a > b ? a - b : 0; }

/* Returns whether a request of this cost is admitted at a time, as must be so by
 * the model. */
static bool check_outcome(subject_t *s, uint64_t cost, uint64_t at_ms) {
    rule_wide_t w = s->model.policy.window_ms;
    bool is_admitted = s->look(cost, at_ms).outcome == Outcome::kAdmitted;
    rule_wide_t wanted = s->model.used(at_ms) + cost * w;

    /* a bucket that is not owed looks at no cost */
    if (cost == 0 && s->model.is_bucket() && wanted <= s->model.full() + s->slack()) {
        return is_admitted;
    }

    if (cost > s->model.capacity || below(wanted, s->slack()) > s->model.full()) {
        CHECK(!is_admitted);
    } else if (wanted + s->slack() <= s->model.full()) {
        CHECK(is_admitted);
    }

    return is_admitted;
}

/* The count of a window of a large limit is rounded up when it ends, which may be
 * when a request was to be admitted. */
static bool is_rounded(const subject_t *s) {
    return s->model.is_counter() && s->model.limit > kNarrowMax;
}

/* What is told must be so, and hold. */
static void check_cost(subject_t *s, uint64_t cost) {
    rule_wide_t w = s->model.policy.window_ms;
    rule_wide_t used = s->model.used(s->now_ms);
    Claim look = s->look(cost, s->now_ms);
    Verdict verdict = look.describe(s->now_ms);
    uint64_t retry_ms = verdict.retry_after_ms;

    check_outcome(s, cost, s->now_ms);
    CHECK(verdict.remaining <= below(s->model.full() + s->slack(), used) / w);
    CHECK(verdict.remaining >= below(s->model.full(), used + s->slack()) / w);

    if (look.outcome == Outcome::kAdmitted) { return; }

    CHECK(retry_ms == look.retry_after_ms(s->now_ms));

    if (cost > s->model.capacity) {
        CHECK(retry_ms == kNever);
        return;
    }

    CHECK(retry_ms > 0 && retry_ms < kNever);
    CHECK(!check_outcome(s, cost, s->now_ms + retry_ms - 1));
    CHECK(check_outcome(s, cost, s->now_ms + retry_ms) || is_rounded(s));

    if (verdict.reset_ms != 0) {
        Verdict before = s->look(0, s->now_ms + verdict.reset_ms - 1)
                             .describe(s->now_ms + verdict.reset_ms - 1);
        Verdict after
            = s->look(0, s->now_ms + verdict.reset_ms).describe(s->now_ms + verdict.reset_ms);

        CHECK(before.remaining <= verdict.remaining);
        CHECK(after.remaining > verdict.remaining || is_rounded(s));
    }
}

static void check(subject_t *s) {
    rule_wide_t w = s->model.policy.window_ms;
    rule_wide_t used = s->model.used(s->now_ms);
    uint64_t told = s->used(s->now_ms);

    CHECK(told * w + s->slack() >= used);
    CHECK(told * w < used + w + s->slack());

    check_cost(s, 1);
    check_cost(s, 0);
    check_cost(s, s->model.capacity);
    check_cost(s, random_below(&s->random, s->model.capacity + 2));
}

/* ---- histories ---- */

struct admitted_t {
    Claim claim;
    owing_model_t::mark_t mark;
};

static uint64_t random_cost(subject_t *s) {
    uint64_t limit = s->model.limit;

    switch (random_below(&s->random, 8)) {
    case 0:
        return 1;
    case 1:
        return limit + random_below(&s->random, 2);
    case 2:
    case 3:
        return random_below(&s->random, limit / 10 + 1) + 1;
    case 4:
        return random_scale(&s->random, 1, 1100) * limit;
    case 5:
        return random_next(&s->random) >> (11 + random_below(&s->random, 52)) | 1;
    default:
        return random_below(&s->random, 4 * limit) + 1;
    }
}

static void tick(subject_t *s) {
    uint64_t w = s->model.policy.window_ms;
    Verdict verdict = s->look(1, s->now_ms).describe(s->now_ms);

    switch (random_below(&s->random, 8)) {
    case 0:
    case 1:
        break;
    case 2:
        s->now_ms += verdict.retry_after_ms;
        break;
    case 3:
        s->now_ms += verdict.retry_after_ms - (verdict.retry_after_ms > 0);
        break;
    case 4:
        s->now_ms += random_below(&s->random, 40) * w;
        break;
    case 5:
        s->now_ms += w - s->now_ms % w;
        break;
    default:
        s->now_ms += random_below(&s->random, 2 * w);
    }
}

static void consume(subject_t *s, admitted_t *admitted) {
    Claim claim = s->claim(random_below(&s->random, s->model.capacity) + 1, Purpose::kConsume);
    bool must = check_outcome(s, claim.cost, s->now_ms);

    limit_sliding::acquire(&claim, 1, s->now_ms);
    CHECK((claim.outcome == Outcome::kAdmitted) == must);

    if (must) { *admitted = {claim, s->model.admit(s->now_ms, claim.cost)}; }
}

static void charge(subject_t *s) {
    uint64_t cost = random_cost(s);
    uint64_t lost = limit_sliding::charge(s->claim(1), cost, s->now_ms);
    uint64_t expected = s->model.charge(s->now_ms, cost);
    uint64_t slack = (uint64_t)(s->slack() / s->model.policy.window_ms) + s->model.is_bucket();

    expected = expected < cost ? expected : cost;
    CHECK(lost <= expected + slack && lost + slack >= expected);

    /* of a part of a request, rounding may have made a whole one */
    s->model.level += ((rule_wide_t)expected - lost) * s->model.policy.window_ms;
}

/* What is left of a bucket after a refund depends on when; histories do without
 * that. */
static void refund(subject_t *s, admitted_t *admitted) {
    uint64_t cost = random_below(&s->random, admitted->mark.cost + 1);

    if (s->model.is_bucket() || admitted->mark.cost == 0) { return; }

    limit_sliding::refund(admitted->claim, cost, admitted->mark.ms, s->now_ms);

    if (s->now_ms - admitted->mark.ms < 128 * s->model.policy.window_ms
        && s->now_ms - admitted->mark.ms < 2 * 60 * MINUTE_MS) {
        s->model.refund(s->now_ms, admitted->mark, cost);
    }

    admitted->mark.cost = 0;
}

static void give_back(subject_t *s) {
    uint64_t cost = random_cost(s);

    limit_sliding::give_back(s->claim(1), cost, s->now_ms);
    s->model.give_back(s->now_ms, cost);
}
