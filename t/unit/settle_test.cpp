/* Copyright (C) the limit_sliding authors */

/*
 * Keys that may owe: random histories of admissions, charges and what is given
 * back, against a simple model, and what must hold for any of them.  SEED=n in the
 * environment runs another.
 */

#include <stdint.h>

static uint64_t seed = 1;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) { fail_msg("SEED=%llu: %s", (unsigned long long)seed, #condition); }     \
    } while (0)

#include "settle_history.hpp"

#define STEPS 40
#define MARKS 4

static void run_history(const Policy &policy, uint64_t limit) {
    subject_t s(policy, limit, seed);
    admitted_t admitted[MARKS] = {};

    for (unsigned step = 0; step < STEPS; step++) {
        admitted_t *one = &admitted[random_below(&s.random, MARKS)];

        switch (random_below(&s.random, 8)) {
        case 0:
        case 1:
            charge(&s);
            break;
        case 2:
            give_back(&s);
            break;
        case 3:
            refund(&s, one);
            break;
        default:
            consume(&s, one);
        }

        check(&s);
        tick(&s);
        check(&s);
    }
}

static void test_histories(void **state) {
    const char *chosen = getenv("SEED");

    (void)state;

    if (chosen != NULL) { seed = strtoull(chosen, NULL, 10); }

    for (unsigned i = 0; i < (chosen != NULL ? 1 : 6); i++, seed++) {
        each_subject(run_history);
    }
}

/* ---- counts that another one has told ---- */

/* A key whose parts are set is as one that was used when these were, whatever it had
 * before. */
static void counts_are_set(const Policy &policy, uint64_t limit) {
    subject_t natural(policy, limit, seed), told(policy, limit, seed);
    const uint64_t n = policy.precision == 1 ? 1 : counter_parts(limit);
    const uint64_t newest = natural.now_ms * n / policy.window_ms;
    uint64_t count[kCounterPartsMax + 1], left = limit;

    limit_sliding::charge(told.claim(1), 3 * limit, natural.now_ms);

    for (uint64_t i = 0; i <= n; i++) {
        const uint64_t part = newest - n + i;
        const uint64_t begins_ms = (part * policy.window_ms + n - 1) / n;

        count[i] = random_below(&natural.random, left + 1);
        left -= count[i];

        CHECK(limit_sliding::charge(natural.claim(1), count[i], begins_ms) == 0);
    }

    /* by the clock of another machine, which is a thousand windows off, or some */
    const int64_t off = static_cast<int64_t>(random_below(&natural.random, 5)) - 2;
    const int64_t off_parts = off * 500 * static_cast<int64_t>(n) + off;
    const uint64_t there = newest + static_cast<uint64_t>(off_parts);
    const uint64_t there_ms
        = natural.now_ms
          + static_cast<uint64_t>(off_parts * static_cast<int64_t>(policy.window_ms)
                                  / static_cast<int64_t>(n));

    CHECK(limit_sliding::set_counts(told.claim(1), n, there, count, there_ms, natural.now_ms));
    CHECK(!limit_sliding::set_counts(told.claim(1), 59, there, count, there_ms, natural.now_ms));

    for (unsigned i = 0; i < 20; i++) {
        const uint64_t at_ms = natural.now_ms + i * policy.window_ms / 9;

        CHECK(told.used(at_ms) == natural.used(at_ms));
    }

    /* what is above the limit is used, and not owed by the windows to come */
    count[n] += limit;
    CHECK(limit_sliding::set_counts(told.claim(1), n, there, count, there_ms, natural.now_ms));
    CHECK(told.used(natural.now_ms) >= limit);
    CHECK(told.used(natural.now_ms + 2 * policy.window_ms + policy.window_ms / n) == 0);
}

/* Whatever is told, no more is used than a state holds, and that is over two windows
 * later. */
static void test_counts_beyond_all_bounds(void **state) {
    uint64_t count[kCounterPartsMax + 1];

    (void)state;

    for (uint64_t most : {kLimitMax / 7, kLimitMax, UINT64_MAX}) {
        std::fill_n(count, LENGTH(count), most);

        each_subject([&](const Policy &policy, uint64_t limit) {
            subject_t told(policy, limit, seed);
            const uint64_t n = policy.precision == 1 ? 1 : counter_parts(limit);
            const uint64_t newest = told.now_ms * n / policy.window_ms;
            const bool is_set = limit_sliding::set_counts(told.claim(1), n, newest, count,
                                                          told.now_ms, told.now_ms);

            CHECK(is_set == (policy.algorithm == Algorithm::kCounter));
            CHECK(!is_set || told.used(told.now_ms) >= std::min(limit, most));
            CHECK(told.used(told.now_ms + 2 * policy.window_ms) == 0);
        });
    }

    Policy policy = parts_of(MINUTE_MS, 10);
    Zone *zone = make_zone_for(&policy, kZoneAlign + 16 * 1024);
    CHECK(!limit_sliding::set_counts(claim_of(zone, &policy, 1, 10, 1), 10, 1, count, 0, 0));
    free(zone);
}

static void test_counts_are_set(void **state) {
    (void)state;

    for (seed = 1; seed <= 200; seed++) {
        each_subject([](const Policy &policy, uint64_t limit) {
            if (policy.algorithm == Algorithm::kCounter) { counts_are_set(policy, limit); }
        });
    }

    seed = 1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories),
        cmocka_unit_test(test_counts_are_set),
        cmocka_unit_test(test_counts_beyond_all_bounds),
    };

    return cmocka_run_group_tests_name("settle", tests, NULL, NULL);
}
