/* Copyright (C) the limit_sliding authors */

/*
 * Keys that may owe: random histories of admissions, charges and refunds, under limits that
 * change, against the model of settle.hpp, and what must hold for any of them.  SEED=n in the
 * environment runs another.
 */

#include <stdint.h>

static uint64_t seed = 1;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fail_msg("SEED=%llu: %s, line %d", (unsigned long long)seed, #condition, __LINE__);    \
        }                                                                                          \
    } while (0)

#include "settle_history.hpp"

static void test_histories(void **state) {
    const char *chosen = getenv("SEED");

    (void)state;

    if (chosen != NULL) { seed = strtoull(chosen, NULL, 10); }

    for (unsigned i = 0; i < (chosen != NULL ? 1 : draws(10)); i++, seed++) {
        each_subject([](const Policy &policy, uint64_t limit) {
            for (limits_t limits : {limits_t::kOne, limits_t::kOfPlaces, limits_t::kOfKey}) {
                subject_t(policy, limit, limits, seed).run(40);
            }
        });
    }

    seed = 1;
}

/* ---- counts that another one has told ---- */

/* A key to which the units of others are added is as one whose requests have all come here. */
static void counts_are_raised(const Policy &policy, uint64_t limit) {
    settle_key_t natural(policy, true), told(policy, true);
    const settle_limit_t by = {limit, false};
    uint64_t random = seed;
    const uint64_t now_ms = PRESENT * policy.window_ms + random_below(&random, policy.window_ms);
    const uint64_t n = policy.precision == 1 ? 1 : counter_parts(limit);
    const uint64_t newest = now_ms * n / policy.window_ms;
    uint64_t count[kCounterPartsMax + 1], left = limit, others = 0;

    for (uint64_t i = 0; i <= n; i++) {
        const uint64_t part = newest - n + i;
        const uint64_t begins_ms = (part * policy.window_ms + n - 1) / n;

        count[i] = random_below(&random, left + 1);
        left -= count[i];

        CHECK(limit_sliding::charge(natural.claim(by, 1), count[i], begins_ms) == 0);

        const uint64_t own = random_below(&random, count[i] + 1);
        others += count[i] - own;
        CHECK(limit_sliding::charge(told.claim(by, 1), own, begins_ms) == 0);
    }

    /* by the clock of another machine, which is a thousand windows off, or some */
    const int64_t off = static_cast<int64_t>(random_below(&random, 5)) - 2;
    const int64_t off_parts = off * 500 * static_cast<int64_t>(n) + off;
    const uint64_t there = newest + static_cast<uint64_t>(off_parts);
    const uint64_t there_ms
        = now_ms
          + static_cast<uint64_t>(off_parts * static_cast<int64_t>(policy.window_ms)
                                  / static_cast<int64_t>(n));

    const auto raise = [&](uint64_t cost, uint64_t parts) {
        return limit_sliding::raise_counts(told.claim(by, 1), cost, parts, there, count, there_ms,
                                           now_ms);
    };

    CHECK(raise(others, n));
    CHECK(!raise(1, 59));

    for (unsigned i = 0; i < 20; i++) {
        const uint64_t at_ms = now_ms + i * policy.window_ms / 9;

        const uint64_t all = natural.used(by, at_ms), used = told.used(by, at_ms);
        /* Large counts of older parts are rounded up.  By so much fewer units of others fit beside
         * own ones there, and are in the newest part. */
        const unsigned digits = kCounterKinds[counter_kind_of(policy, limit)].rounding;
        const uint64_t most = digits != 0 ? uint64_t{1} << digits : 0;

        CHECK(used >= all && used - all <= most);
    }

    /* units above the limit are used, and not owed by the windows to come */
    CHECK(raise(limit, n));
    CHECK(told.used(by, now_ms) >= limit);
    CHECK(told.used(by, now_ms + 2 * policy.window_ms + policy.window_ms / n) == 0);
}

static bool has_counts(const Policy &policy) {
    return policy.algorithm == Algorithm::kCounter && !policy.has_rings();
}

/* Whatever is told, no more is used than a state holds, and that is over two windows later. */
static void test_counts_beyond_all_bounds(void **state) {
    uint64_t count[kCounterPartsMax + 1];

    (void)state;

    for (uint64_t most : {kLimitMax / 7, kLimitMax, UINT64_MAX}) {
        std::fill_n(count, LENGTH(count), most);

        each_subject([&](const Policy &policy, uint64_t limit) {
            settle_key_t told(policy, true);
            const settle_limit_t by = {limit, false};
            const uint64_t now_ms = PRESENT * policy.window_ms + 7;
            const uint64_t n = policy.precision == 1 ? 1 : counter_parts(limit);
            const uint64_t newest = now_ms * n / policy.window_ms;
            const bool is_set = limit_sliding::raise_counts(told.claim(by, 1), most, n, newest,
                                                            count, now_ms, now_ms);

            CHECK(is_set == has_counts(policy));
            CHECK(!is_set || told.used(by, now_ms) >= std::min(limit, most));
            CHECK(told.used(by, now_ms + 2 * policy.window_ms) == 0);
        });
    }
}

static void test_counts_are_raised(void **state) {
    (void)state;

    for (seed = 1; seed <= draws(200); seed++) {
        each_subject([](const Policy &policy, uint64_t limit) {
            if (has_counts(policy)) { counts_are_raised(policy, limit); }
        });
    }

    seed = 1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories),
        cmocka_unit_test(test_counts_are_raised),
        cmocka_unit_test(test_counts_beyond_all_bounds),
    };

    return cmocka_run_group_tests_name("settle", tests, NULL, NULL);
}
