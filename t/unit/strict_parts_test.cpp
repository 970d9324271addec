/* Copyright (C) the limit_sliding authors */

/*
 * A strict counter of n parts, beside a list of what it has admitted: never more
 * than the limit in any half-open interval of one window, and not stricter than
 * its rule.  Requests crowd at the borders of parts and of windows, the clocks
 * of workers differ, limits change, and units are given back.
 *
 * SEED=n in the environment runs another history, HISTORIES=n so many.
 */

#include "random.hpp"
#include "support.hpp"

#include <stdbool.h>
#include <stdio.h>

#define KEY 1
#define HISTORIES 2000
#define STEPS 500
#define ZONE_BYTES (kZoneAlign + 256 * 1024)

struct admitted_t {
    uint64_t at_ms; /* never below the one before */
    uint64_t units; /* less what was given back */
    Claim claim;
};

struct history_t {
    uint64_t seed;
    uint64_t random;
    unsigned step;
    Policy policy;
    Zone *zone;
    uint64_t now_ms;    /* by the earliest clock */
    uint64_t behind_ms; /* the most by which clocks differ, and 1 */
    uint32_t limit;
    size_t n;
    admitted_t admitted[STEPS];
};

#define CHECK(h, condition)                                                                        \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fail_msg("SEED=%llu, step %u, precision %u, window %llu ms: %s",                       \
                     (unsigned long long)(h)->seed, (h)->step, (h)->policy.precision,              \
                     (unsigned long long)(h)->policy.window_ms, #condition);                       \
        }                                                                                          \
    } while (0)

static uint64_t part_of(const history_t *h, uint64_t at_ms) {
    return at_ms * h->policy.precision / h->policy.window_ms;
}

/* A clock that is behind takes things as of the last admission. */
static uint64_t later_of(const history_t *h, uint64_t at_ms) {
    return h->n > 0 && h->admitted[h->n - 1].at_ms > at_ms ? h->admitted[h->n - 1].at_ms : at_ms;
}

/* What the rule counts at that time. */
static uint64_t used(const history_t *h, uint64_t at_ms) {
    uint64_t oldest = part_of(h, later_of(h, at_ms)) - h->policy.precision;
    uint64_t sum = 0;

    for (size_t i = h->n; i > 0 && part_of(h, h->admitted[i - 1].at_ms) >= oldest; i--) {
        sum += h->admitted[i - 1].units;
    }

    return sum;
}

/* What was admitted in the window that ends with the last admission. */
static uint64_t in_last_window(const history_t *h) {
    uint64_t end_ms = h->admitted[h->n - 1].at_ms;
    uint64_t sum = 0;

    for (size_t i = h->n; i > 0 && end_ms - h->admitted[i - 1].at_ms < h->policy.window_ms; i--) {
        sum += h->admitted[i - 1].units;
    }

    return sum;
}

/* ---- a history ---- */

static void begin(history_t *h, uint64_t seed) {
    memset(h, 0, sizeof(*h));

    h->seed = seed;
    h->random = seed;
    h->policy = evicting(random_window_ms(&h->random));
    h->policy.precision = 2 + (uint32_t)random_below(&h->random, 59);
    h->policy.strict = true;
    h->zone = make_zone_for(&h->policy, ZONE_BYTES);
    h->now_ms = PRESENT * h->policy.window_ms + random_below(&h->random, h->policy.window_ms);
    h->behind_ms = random_below(&h->random, 2) == 0 ? 1 : 1 + random_below(&h->random, 60);
    h->limit = (uint32_t)random_scale(&h->random, 1, LIMIT_MAX / 2);
}

/* Returns the first millisecond of a part. */
static uint64_t begin_of(const history_t *h, uint64_t part) {
    return (part * h->policy.window_ms + h->policy.precision - 1) / h->policy.precision;
}

/* Most often to about where a part ends, soon or a window later. */
static void tick(history_t *h) {
    uint64_t present = part_of(h, h->now_ms);
    uint64_t next_ms = h->now_ms;

    switch (random_below(&h->random, 8)) {
    case 0:
        next_ms = begin_of(h, present + h->policy.precision) - 1 + random_below(&h->random, 3);
        break;
    case 1:
    case 2:
        next_ms = begin_of(h, present + 1) - 1 + random_below(&h->random, 3);
        break;
    case 3:
        next_ms += h->policy.window_ms - 1 + random_below(&h->random, 3);
        break;
    case 4:
        next_ms += random_below(&h->random, h->policy.window_ms / h->policy.precision + 1);
        break;
    default:
        break;
    }

    h->now_ms = next_ms > h->now_ms ? next_ms : h->now_ms;
}

static uint32_t random_cost(history_t *h, uint32_t limit, uint64_t taken) {
    uint64_t left = limit - (taken < limit ? taken : limit);

    switch (random_below(&h->random, 4)) {
    case 0:
        return 1;
    case 1:
        return (uint32_t)random_below(&h->random, limit) + 1;
    default:
        /* what is left, or one more */
        return (uint32_t)(left + (left == 0 || (left < limit && random_below(&h->random, 2))));
    }
}

static void give_back(history_t *h, uint64_t at_ms) {
    admitted_t *last = &h->admitted[h->n - 1 - random_below(&h->random, h->n < 8 ? h->n : 8)];

    if (last->units == 0) { return; }

    limit_sliding::release(&last->claim, 1, at_ms);
    last->units = 0;
}

static void check_rejected(const history_t *h, const Claim *claim, uint64_t at_ms) {
    Verdict verdict = claim->describe(at_ms);
    uint64_t taken = used(h, at_ms);
    uint64_t left = claim->limit - (taken < claim->limit ? taken : claim->limit);

    CHECK(h, verdict.remaining == left);
    CHECK(h, verdict.excess == (taken + claim->cost - claim->limit) * 1000);
    CHECK(h, verdict.retry_after_ms > 0);
    CHECK(h, used(h, at_ms + verdict.retry_after_ms) + claim->cost <= claim->limit);
    CHECK(h, used(h, at_ms + verdict.retry_after_ms - 1) + claim->cost > claim->limit);
}

static void step(history_t *h) {
    uint64_t at_ms = h->now_ms + random_below(&h->random, h->behind_ms);
    uint32_t limit = random_below(&h->random, 8) == 0
                         ? (uint32_t)random_below(&h->random, 2ull * h->limit) + 1
                         : h->limit;
    uint64_t taken = used(h, at_ms);
    uint32_t cost = random_cost(h, limit, taken);
    Claim claim = acquire(h->zone, &h->policy, KEY, limit, cost, at_ms);

    CHECK(h, (claim.outcome == Outcome::kAdmitted) == (taken + cost <= limit));

    if (claim.outcome != Outcome::kAdmitted) {
        check_rejected(h, &claim, at_ms);
        return;
    }

    h->admitted[h->n] = (admitted_t){later_of(h, at_ms), cost, claim};
    h->n++;

    CHECK(h, in_last_window(h) <= limit);
    CHECK(h, limit - remaining_of(h->zone, &h->policy, KEY, limit, at_ms) == used(h, at_ms));
}

static void run_history(uint64_t seed) {
    static history_t h;

    begin(&h, seed);

    for (h.step = 0; h.step < STEPS; h.step++) {
        tick(&h);

        if (h.n > 0 && random_below(&h.random, 6) == 0) { give_back(&h, h.now_ms); }

        step(&h);
    }

    CHECK(&h, stats_of(h.zone).evicted == 0);
    free(h.zone);
}

static void test_histories(void **state) {
    const char *seed = getenv("SEED");
    const char *histories = getenv("HISTORIES");
    uint64_t n = histories == NULL ? HISTORIES : strtoull(histories, NULL, 10);

    (void)state;

    if (seed != NULL) {
        run_history(strtoull(seed, NULL, 10));
        return;
    }

    for (uint64_t i = 1; i <= n; i++) {
        run_history(i);
    }
}

/* ---- the worst cases ---- */

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
        zone = make_zone_for(&policy, ZONE_BYTES);
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
        cmocka_unit_test(test_histories),
        cmocka_unit_test(test_bursts_at_borders),
    };

    return cmocka_run_group_tests_name("strict_parts", tests, NULL, NULL);
}
