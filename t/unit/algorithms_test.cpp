/* Copyright (C) the limit_sliding authors */

/*
 * All algorithms and precisions through the same random histories, against
 * exact oracles.  SEED=n in the environment runs one history, of that seed.
 */

#include <stdio.h>

#include "exact.hpp"
#include "history.hpp"
#include "support.hpp"
#include "zone.hpp"

#define HISTORIES draws(300)

/* Small, so that keys share slots with others that have expired. */
#define LOG_BYTES (96 * 128 + kZoneAlign)
#define PARTS_BYTES (PAIR_SLOTS * 512 + kZoneAlign)

/* A history on its way through one algorithm. */
struct run_t {
    const history_t *history;
    const request_t *request; /* the present one */
    Policy policy;
    Zone *zone;
    size_t bytes;
    Zone *copy;     /* where the future is tried */
    exact_t *exact; /* of the present request's key */
    exact_t exact_of[HISTORY_KEYS];
    struct {
        const request_t *request;
        uint32_t remaining;
    } last[HISTORY_KEYS];
    struct {
        const request_t *request;
        uint64_t leaves_ms;
    } queued[HISTORY_KEYS]; /* LEAKY_BUCKET */
};

#define CHECK(run, condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) { fail_run(run, #condition, __LINE__); }                                 \
    } while (0)

static void fail_run(const run_t *run, const char *condition, int line) {
    const request_t *r = run->request;

    fail_msg("SEED=%llu, algorithm %d, precision %u, burst %u, window %llu ms,"
             " clock %s, limits %d, request %ld (at %llu, key %llu, limit %u, "
             "cost %u), line %d: %s",
             (unsigned long long)run->history->seed, run->policy.algorithm, run->policy.precision,
             run->policy.burst, (unsigned long long)run->policy.window_ms,
             run->history->is_steady ? "steady" : "unsteady", run->history->limits,
             (long)(r - run->history->request), (unsigned long long)r->now_ms,
             (unsigned long long)r->key, r->limit, r->cost, line, condition);
}

/* ---- the core ---- */

static Claim claim(const run_t *run, Zone *zone) {
    const request_t *r = run->request;

    return claim_of(zone, &run->policy, r->key, r->limit, r->cost);
}

static Outcome look(const run_t *run) {
    Claim c = claim(run, run->zone);

    c.purpose = Purpose::kLook;
    limit_sliding::acquire(&c, 1, run->request->now_ms);

    return c.outcome;
}

/* The present request at another time, if nobody else consumes until then. */
static Outcome outcome_at(const run_t *run, uint64_t at_ms) {
    Claim c = claim(run, run->copy);

    memcpy(run->copy, run->zone, run->bytes);
    limit_sliding::acquire(&c, 1, at_ms);

    return c.outcome;
}

static uint32_t remaining_at(const run_t *run, uint64_t at_ms) {
    const request_t *r = run->request;

    memcpy(run->copy, run->zone, run->bytes);

    return remaining_of(run->copy, &run->policy, r->key, r->limit, at_ms);
}

/* ---- the oracle, between whose two sides the core has to be ---- */

static int surely_fits(const run_t *run, uint64_t at_ms) {
    const request_t *r = run->request;

    return exact_fits(run->exact, at_ms, r->limit, r->cost, EXACT_MOST);
}

static int perhaps_fits(const run_t *run, uint64_t at_ms) {
    const request_t *r = run->request;

    return exact_fits(run->exact, at_ms, r->limit, r->cost, EXACT_LEAST);
}

static uint64_t left_at_least(const run_t *run, uint64_t at_ms) {
    return exact_left(run->exact, at_ms, run->request->limit, EXACT_MOST);
}

static uint64_t left_at_most(const run_t *run, uint64_t at_ms) {
    return exact_left(run->exact, at_ms, run->request->limit, EXACT_LEAST);
}

/* ---- what must hold ---- */

static void check_reset(const run_t *run, const Verdict *v) {
    const request_t *r = run->request;
    uint64_t reset_at_ms = r->now_ms + v->reset_ms;

    if (v->reset_ms == 0) {
        CHECK(run, v->remaining == exact_capacity(&run->policy, r->limit));
        return;
    }

    CHECK(run, left_at_least(run, reset_at_ms - 1) <= v->remaining);
    CHECK(run, left_at_most(run, reset_at_ms) > v->remaining);
    CHECK(run, remaining_at(run, reset_at_ms - 1) == v->remaining);
    CHECK(run, remaining_at(run, reset_at_ms) > v->remaining);
}

static void check_remaining(run_t *run, const Verdict *v) {
    const request_t *r = run->request;
    const request_t *last = run->last[r->key].request;

    CHECK(run, v->limit == r->limit);
    CHECK(run, v->remaining >= left_at_least(run, r->now_ms));
    CHECK(run, v->remaining <= left_at_most(run, r->now_ms));

    if (last != NULL && last->now_ms == r->now_ms && last->limit == r->limit) {
        CHECK(run, v->remaining <= run->last[r->key].remaining);
    }

    run->last[r->key].request = r;
    run->last[r->key].remaining = v->remaining;

    check_reset(run, v);
}

static void check_excess(const run_t *run, const Verdict *v) {
    const request_t *r = run->request;
    uint64_t (*excess)(const exact_t *, uint64_t, uint32_t, uint32_t, exact_side_t)
        = run->policy.algorithm == Algorithm::kLeakyBucket ? exact_queued : exact_excess;

    CHECK(run, v->excess >= excess(run->exact, r->now_ms, r->limit, r->cost, EXACT_LEAST));
    CHECK(run, v->excess <= excess(run->exact, r->now_ms, r->limit, r->cost, EXACT_MOST));
}

static void check_rejected(run_t *run, const Verdict *v) {
    const request_t *r = run->request;
    uint64_t retry_at_ms = r->now_ms + v->retry_after_ms;

    CHECK(run, !surely_fits(run, r->now_ms));
    CHECK(run, v->excess > 0);
    CHECK(run, v->delay_ms == 0);
    check_excess(run, v);
    check_remaining(run, v);

    if (r->cost > exact_capacity(&run->policy, r->limit)) {
        CHECK(run, v->retry_after_ms == kNever);
        return;
    }

    CHECK(run, v->retry_after_ms > 0);
    CHECK(run, v->retry_after_ms < kNever);
    CHECK(run, !surely_fits(run, retry_at_ms - 1));
    CHECK(run, perhaps_fits(run, retry_at_ms));
    CHECK(run, outcome_at(run, retry_at_ms - 1) == Outcome::kRejected);
    CHECK(run, outcome_at(run, retry_at_ms) == Outcome::kAdmitted);
}

/* Requests leave the queue at the limit's pace, to a millisecond. */
static void check_pace(run_t *run, uint64_t leaves_ms) {
    const request_t *r = run->request;
    const request_t *before = run->queued[r->key].request;

    if (before != NULL && run->history->limits != HISTORY_LIMIT_A_REQUEST) {
        uint64_t gap_ms = leaves_ms - run->queued[r->key].leaves_ms;

        CHECK(run, leaves_ms >= run->queued[r->key].leaves_ms);
        CHECK(run, (wide_t)r->limit * (gap_ms + 1) > (wide_t)before->cost * run->policy.window_ms);
    }

    run->queued[r->key].request = r;
    run->queued[r->key].leaves_ms = leaves_ms;
}

static void check_delay(run_t *run, const Verdict *v) {
    const request_t *r = run->request;

    if (r->cost == 0) {
        CHECK(run, v->delay_ms == 0);
        return;
    }

    CHECK(run,
          v->delay_ms >= exact_delay_ms(run->exact, r->now_ms, r->limit, r->cost, EXACT_LEAST));
    CHECK(run, v->delay_ms <= exact_delay_ms(run->exact, r->now_ms, r->limit, r->cost, EXACT_MOST));
    if (run->policy.undelayed == 0) { check_pace(run, r->now_ms + v->delay_ms); }
}

static void check_admitted(run_t *run, const Verdict *v) {
    const request_t *r = run->request;

    CHECK(run, perhaps_fits(run, r->now_ms));
    CHECK(run, v->retry_after_ms == 0);

    if (run->policy.algorithm == Algorithm::kLeakyBucket) {
        check_delay(run, v);
        check_excess(run, v);
    } else {
        CHECK(run, v->delay_ms == 0);
        CHECK(run, v->excess == 0);
    }

    exact_record(run->exact, r->now_ms, r->limit, r->cost);

    CHECK(run, exact_keeps_promise(run->exact));
    check_remaining(run, v);
}

static void step(run_t *run) {
    const request_t *r = run->request;
    Outcome seen = look(run);
    Claim c = claim(run, run->zone);
    Verdict v;

    run->exact = &run->exact_of[r->key];

    limit_sliding::acquire(&c, 1, r->now_ms);
    v = c.describe(r->now_ms);
    CHECK(run, c.delay_ms(r->now_ms) == v.delay_ms);
    CHECK(run, c.retry_after_ms(r->now_ms) == v.retry_after_ms);
    CHECK(run, c.outcome == seen);
    CHECK(run, c.outcome != Outcome::kRefused);

    if (c.outcome == Outcome::kAdmitted) {
        check_admitted(run, &v);
    } else {
        check_rejected(run, &v);
    }
}

static size_t bytes_for(const Policy *policy) {
    if (policy->algorithm == Algorithm::kLog) { return LOG_BYTES; }

    return policy->precision > 1 ? PARTS_BYTES : PAIR_BYTES;
}

static void run_history(const history_t *history, Algorithm algorithm, uint32_t precision,
                        bool strict, void *memory, void *copy) {
    static run_t run;

    memset(&run, 0, sizeof(run));

    run.history = history;
    run.policy.window_ms = history->window_ms;
    run.policy.algorithm = algorithm;
    run.policy.precision = precision;
    run.policy.strict = strict;
    run.policy.burst = history->burst;
    run.policy.undelayed = history->undelayed;
    run.bytes = bytes_for(&run.policy);
    run.zone = zone_of(memory, run.bytes, &run.policy, history->offset_ms);
    run.copy = static_cast<Zone *>(copy);

    for (size_t key = 0; key < HISTORY_KEYS; key++) {
        run.exact_of[key].policy = &run.policy;
        run.exact_of[key].offset_ms = history->offset_ms;
    }

    for (size_t i = 0; i < HISTORY_LENGTH; i++) {
        run.request = &history->request[i];
        step(&run);
    }

    CHECK(&run, stats_of(run.zone).evicted == 0);
}

static void run_histories(Algorithm algorithm, uint32_t first, uint32_t last, bool strict) {
    static history_t history;
    const char *seed = getenv("SEED");
    uint64_t from = seed == NULL ? 1 : strtoull(seed, NULL, 10);
    uint64_t to = seed == NULL ? HISTORIES : from;
    void *memory = zone_memory(LOG_BYTES);
    void *copy = zone_memory(LOG_BYTES);

    for (uint64_t i = from; i <= to; i++) {
        history_draw(&history, i);

        for (uint32_t precision = first; precision <= last; precision++) {
            run_history(&history, algorithm, precision, strict, memory, copy);
        }
    }

    free(memory);
    free(copy);
}

/* ---- the tests ---- */

static void test_counter(void **state) {
    (void)state;

    run_histories(Algorithm::kCounter, 0, 1, false);
}

static void test_counter_precisions(void **state) {
    (void)state;

    run_histories(Algorithm::kCounter, 2, 60, false);
}

static void test_strict_counter_precisions(void **state) {
    (void)state;

    run_histories(Algorithm::kCounter, 0, 60, true);
}

static void test_log(void **state) {
    (void)state;

    run_histories(Algorithm::kLog, 0, 0, false);
}

static void test_fixed(void **state) {
    (void)state;

    run_histories(Algorithm::kFixed, 0, 0, false);
}

/* Windows count exactly up to the largest limit. */
static void test_fixed_of_a_billion(void **state) {
    uint64_t random = 1;

    (void)state;

    for (unsigned n = 0; n < 2000; n++) {
        Policy policy = {random_window_ms(&random), Algorithm::kFixed};
        uint64_t now_ms = random_next(&random) >> 24;
        uint64_t window = 0;
        uint64_t count = 0;
        uint32_t limit = (uint32_t)(kLimitMax - random_below(&random, 1000000));
        State key = 0;

        for (unsigned i = 0; i < 50; i++) {
            uint32_t cost = 1 + (uint32_t)random_below(&random, limit / 3);

            now_ms += random_below(&random, policy.window_ms / 4);
            count = now_ms / policy.window_ms == window ? count : 0;
            window = now_ms / policy.window_ms;

            if (random_below(&random, 4) == 0) { cost = (uint32_t)(limit - count + i % 2); }

            int admitted = pure::admit(policy, key, now_ms, limit, cost, &key);

            assert_int_equal(admitted, count + cost <= limit);
            count += admitted ? cost : 0;
            assert_int_equal(pure::describe(policy, key, now_ms, limit, 0).remaining,
                             limit - count);
        }
    }
}

/* What only Redis can count is cut before shared memory counts it. */
static void test_numbers_of_redis_are_cut(void **state) {
    Policy policy = evicting(kWindowMaxMs);
    Zone *zone = make_zone_for(&policy, PAIR_BYTES);
    Claim claim = {.zone = zone, .policy = &policy, .limit = kRemoteMax, .cost = kRemoteMax + 1};

    (void)state;

    claim.fit_core();
    assert_int_equal(limit_sliding::acquire(&claim, 1, 0), 0);
    assert_int_equal(claim.outcome, Outcome::kRejected);

    Verdict v = claim.describe(0);

    assert_int_equal(v.limit, kLimitMax);
    assert_int_equal(v.excess, (kCostMax - kLimitMax) * 1000);
    assert_true(v.retry_after_ms == kNever);

    claim.limit = kRemoteMax;
    claim.cost = kLimitMax;
    claim.fit_core();
    limit_sliding::acquire(&claim, 1, 0);
    assert_int_equal(claim.outcome, Outcome::kAdmitted);

    policy.precision = 2;
    claim.fit_core();
    assert_int_equal(claim.limit, kNarrowMax);
    free(zone);
}

static void test_token_bucket(void **state) {
    (void)state;

    run_histories(Algorithm::kTokenBucket, 0, 0, false);
}

static void test_leaky_bucket(void **state) {
    (void)state;

    run_histories(Algorithm::kLeakyBucket, 0, 0, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counter),
        cmocka_unit_test(test_counter_precisions),
        cmocka_unit_test(test_strict_counter_precisions),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_token_bucket),
        cmocka_unit_test(test_leaky_bucket),
        cmocka_unit_test(test_fixed_of_a_billion),
        cmocka_unit_test(test_numbers_of_redis_are_cut),
    };

    return cmocka_run_group_tests_name("algorithms", tests, NULL, NULL);
}
