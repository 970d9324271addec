/* Copyright (C) the limit_sliding authors */

/*
 * What is admitted in any interval of a window, beside a log of all that was:
 * strictly never more than the limit, else with precision=auto no more than
 * the limit and an n-th of it.  Random histories, and such as are made to
 * exceed it.  SEED=n in the environment runs another history.
 */

#include <algorithm>

#include "core/rules/counter_kinds.hpp"
#include "support.hpp"

#define HISTORIES draws(8000)
#define REQUESTS 2500
#define KEY 1

struct admitted_t {
    uint64_t at_ms;
    uint64_t cost;
};

/* One key, and what it was admitted in its last window. */
struct history_t {
    Policy policy;
    Zone *zone;
    admitted_t log[REQUESTS];
    size_t first;
    size_t n;
    uint64_t total;
    uint64_t seed;
};

static void forget_old(history_t *key, uint64_t now_ms) {
    while (key->first < key->n && now_ms - key->log[key->first].at_ms >= key->policy.window_ms) {
        key->total -= key->log[key->first++].cost;
    }
}

/* The limit, and what a window may have above it. */
static uint64_t most_of(const Policy *policy, uint64_t limit) {
    return policy->strict ? limit : limit + limit / counter_parts(limit);
}

static Claim ask(history_t *key, uint64_t now_ms, uint64_t limit, uint64_t cost, bool is_refunded) {
    Claim claim = acquire(key->zone, &key->policy, KEY, limit, cost, now_ms);

    if (claim.outcome != Outcome::kAdmitted || cost == 0) { return claim; }

    if (is_refunded) {
        limit_sliding::release(&claim, 1, now_ms);
        return claim;
    }

    forget_old(key, now_ms);
    key->log[key->n++] = {now_ms, cost};
    key->total += cost;

    if (key->total > most_of(&key->policy, limit)) {
        fail_msg("SEED=%llu: %llu admitted in a window of %llu ms, limit %llu, precision %u%s",
                 (unsigned long long)key->seed, (unsigned long long)key->total,
                 (unsigned long long)key->policy.window_ms, (unsigned long long)limit,
                 key->policy.precision, key->policy.strict ? ", strict" : "");
    }

    return claim;
}

static bool admits_to(history_t *key, uint64_t now_ms, uint64_t limit, uint64_t cost) {
    return ask(key, now_ms, limit, cost, false).outcome == Outcome::kAdmitted;
}

static void begin(history_t *key, uint64_t window_ms, uint32_t precision, bool is_strict) {
    key->policy = evicting(window_ms);
    key->policy.precision = precision;
    key->policy.strict = is_strict;
    key->zone = make_zone_for(&key->policy, 64 * 1024);
    key->first = key->n = 0;
    key->total = 0;
}

/* ---- random histories ---- */

static uint64_t random_limit(uint64_t *random) {
    switch (random_below(random, 4)) {
    case 0:
        return 1 + random_below(random, 15);
    case 1:
        return 1 + random_below(random, 300);
    case 2:
        return 1 + random_below(random, 20000);
    default:
        return random_scale(random, 1, LIMIT_MAX);
    }
}

/* To the end of a part or a window, or a little before or after it; or anywhere
 * in the next half of a window. */
static uint64_t random_step_ms(uint64_t *random, uint64_t now_ms, uint64_t w, uint64_t limit) {
    uint64_t n = counter_parts(limit);
    uint64_t ends_ms = ((now_ms * n / w + 1) * w + n - 1) / n - now_ms;

    switch (random_below(random, 8)) {
    case 0:
        return 0;
    case 1:
        return ends_ms;
    case 2:
        return ends_ms > 1 ? ends_ms - 1 : 1;
    case 3:
        return w - now_ms % w;
    case 4:
        return w - 1;
    case 5:
        return w / n + random_below(random, 3);
    default:
        return random_below(random, w / 2 + 1);
    }
}

static void run_random(uint64_t seed) {
    static history_t key;
    uint64_t random = seed;
    bool is_strict = random_below(&random, 4) != 0;
    bool has_one_limit = !is_strict || random_below(&random, 2);
    uint32_t precision = is_strict ? (uint32_t)random_below(&random, 2) : 0;
    uint64_t now_ms = random_next(&random) >> 22;
    uint64_t limit = random_limit(&random);

    key.seed = seed;
    begin(&key, random_window_ms(&random), precision, is_strict);

    for (unsigned i = 0; i < REQUESTS; i++) {
        uint64_t cost = random_below(&random, 3)
                            ? 1
                            : random_below(&random, random_below(&random, 2) ? limit : 8) + 1;

        if (!has_one_limit && random_below(&random, 8) == 0) { limit = random_limit(&random); }

        if (random_below(&random, 3) == 0) {
            now_ms += random_step_ms(&random, now_ms, key.policy.window_ms, limit);
        }

        ask(&key, now_ms, limit, std::min(cost, limit), random_below(&random, 16) == 0);
    }

    free(key.zone);
}

static void test_random(void **state) {
    const char *seed = getenv("SEED");

    (void)state;

    if (seed != NULL) {
        run_random(strtoull(seed, NULL, 10));
        return;
    }

    for (uint64_t i = 1; i <= HISTORIES; i++) {
        run_random(i);
    }
}

/* ---- made to exceed it ---- */

static const uint64_t limits[]
    = {1,  2,   3,   4,   7,   8,   10,   15,   16,   21,    22,    30,    31,     32,       63,
       64, 100, 127, 128, 255, 256, 1000, 2047, 2048, 10000, 16383, 16384, 100000, LIMIT_MAX};

/* All that is to be had at one moment, at a second one, and then as soon as
 * there is some again: the moments are around borders of parts and windows. */
static void check_bursts(uint64_t w, uint64_t limit, uint32_t precision, bool is_strict,
                         uint64_t first_ms, uint64_t gap_ms) {
    static history_t key;
    uint64_t now_ms = first_ms;

    key.seed = 0;
    begin(&key, w, precision, is_strict);

    for (unsigned burst = 0; burst < 6; burst++) {
        uint64_t left = remaining_of(key.zone, &key.policy, KEY, limit, now_ms);

        if (left > 0) { assert_true(admits_to(&key, now_ms, limit, left)); }

        assert_false(admits_to(&key, now_ms, limit, 1));
        now_ms += burst % 2 == 0 ? gap_ms : w - gap_ms;
    }

    /* all of it is to be had again after a window and a part */
    now_ms += w + w / counter_parts(limit) * 2 + 2;
    if (precision == 1) { now_ms += w; }

    assert_int_equal(remaining_of(key.zone, &key.policy, KEY, limit, now_ms), limit);
    free(key.zone);
}

static void check_all_bursts(uint32_t precision, bool is_strict) {
    const uint64_t windows_ms[] = {100, 999, MINUTE_MS, DAY_MS};

    for (uint64_t limit : limits) {
        for (uint64_t w : windows_ms) {
            uint64_t n = precision == 1 ? 1 : counter_parts(limit);
            uint64_t start_ms = PRESENT * w;

            for (uint64_t part : {uint64_t{0}, n / 2, n - 1}) {
                uint64_t ends_ms = start_ms + (part + 1) * w / n;

                for (uint64_t first_ms : {ends_ms - 1, ends_ms, ends_ms + 1}) {
                    for (uint64_t gap_ms : {uint64_t{1}, w / n, w / 2, w - w / n - 1, w - 1}) {
                        check_bursts(w, limit, precision, is_strict, first_ms,
                                     std::min(gap_ms, w - 1));
                    }
                }
            }
        }
    }
}

static void test_bursts(void **state) {
    (void)state;

    check_all_bursts(0, true);
    check_all_bursts(1, true);
    check_all_bursts(0, false);
}

/* Limits that change with each request, of all pairs of kinds. */
static void test_limits_that_change(void **state) {
    static history_t key;

    (void)state;

    for (uint64_t one : limits) {
        for (uint64_t other : limits) {
            uint64_t now_ms = PRESENT * MINUTE_MS + 59000;

            key.seed = 0;
            begin(&key, MINUTE_MS, 0, true);

            for (unsigned i = 0; i < 240; i++) {
                uint64_t limit = i % 2 ? one : other;
                uint64_t left = remaining_of(key.zone, &key.policy, KEY, limit, now_ms);

                if (left > 0) { admits_to(&key, now_ms, limit, i % 3 ? 1 : left); }

                now_ms += 997;
            }

            free(key.zone);
        }
    }
}

/* All at the end of a part, and all again as soon as may be: a window and a
 * millisecond later, when that part is over. */
static void test_bursts_at_borders(void **state) {
    (void)state;

    for (uint32_t n = 2; n <= 60; n++) {
        Policy policy = evicting(6000);
        uint64_t burst_ms;
        Zone *zone;

        policy.precision = n;
        policy.strict = true;
        zone = make_zone_for(&policy, 64 * 1024);
        burst_ms = PRESENT * 6000 + 5999 / n; /* the last of a part */

        assert_true(admits(zone, &policy, KEY, 100, 100, burst_ms));

        for (uint64_t now_ms = burst_ms; now_ms <= burst_ms + 6000; now_ms++) {
            assert_false(admits(zone, &policy, KEY, 100, 1, now_ms));
        }

        assert_true(admits(zone, &policy, KEY, 100, 100, burst_ms + 6001));

        /* by a clock that is behind */
        assert_false(admits(zone, &policy, KEY, 100, 1, burst_ms + 5990));
        free(zone);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_bursts),
        cmocka_unit_test(test_limits_that_change),
        cmocka_unit_test(test_bursts_at_borders),
    };

    return cmocka_run_group_tests_name("strict", tests, NULL, NULL);
}
