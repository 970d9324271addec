/* Copyright (C) the limit_sliding authors */

/* Keys whose lines are full, so that they are in spare lines. */

#include "processes.hpp"
#include "spare.hpp"

#include <sched.h>

#define NOW_MS (PRESENT * MINUTE_MS + 59000)

/* More than any key here uses. */
#define HEAVY 100

static Zone *make_full_zone(const Policy *policy) {
    Zone *zone = make_zone(SPARE_ZONE_BYTES);

    assert_int_equal(zone->pairs.spare, 1);
    fill_but_spare(zone, policy, HEAVY, HEAVY, NOW_MS);
    assert_int_equal(spare_in_use(zone), 0);

    return zone;
}

static void test_tables_without_spare_lines(void **state) {
    (void)state;

    for (unsigned pairs = 1; pairs < 100; pairs++) {
        Zone *zone = make_zone(kZoneAlign + pairs * 128);

        assert_int_equal(zone->pairs.all(), pairs);
        assert_int_equal(zone->pairs.spare, pairs / 32);
        free(zone);
    }
}

/* Found in the epoch of its last request and in a later one, looked at, given
 * back to, and forgotten. */
static void test_keys_in_spare_lines_are_found(void **state) {
    Policy policy = evicting(MINUTE_MS);
    Zone *zone = make_full_zone(&policy);
    uint64_t later_ms = NOW_MS + MINUTE_MS * 64000;

    (void)state;

    for (uint64_t key = 0; key < PAIR_SLOTS; key++) {
        assert_true(admits(zone, &policy, key, 2, 1, NOW_MS));
        assert_int_equal(spare_in_use(zone), key + 1);
        assert_true(admits(zone, &policy, key, 2, 1, NOW_MS));
    }

    for (uint64_t key = 0; key < PAIR_SLOTS; key++) {
        Claim claim = claim_of(zone, &policy, key, 2, 1);

        assert_false(admits(zone, &policy, key, 2, 1, NOW_MS));
        assert_int_equal(remaining_of(zone, &policy, key, 2, NOW_MS), 0);
        claim.forget(NOW_MS);
        assert_int_equal(remaining_of(zone, &policy, key, 2, NOW_MS), 2);

        claim = acquire(zone, &policy, key, 2, 2, NOW_MS);
        assert_int_equal(claim.outcome, Outcome::kAdmitted);
        limit_sliding::release(&claim, 1, NOW_MS);
        assert_int_equal(remaining_of(zone, &policy, key, 2, NOW_MS), 2);
    }

    assert_int_equal(stats_of(zone).evicted, 0);
    assert_int_equal(spare_in_use(zone), PAIR_SLOTS);

    fill_but_spare(zone, &policy, HEAVY, HEAVY, later_ms);

    for (uint64_t key = 0; key < PAIR_SLOTS; key++) {
        assert_true(admits(zone, &policy, key, 2, 2, later_ms));
        assert_false(admits(zone, &policy, key, 2, 1, later_ms));
    }

    assert_int_equal(stats_of(zone).evicted, 0);
    free(zone);
}

/* A line that has a place left keeps a key from the spare ones. */
static void test_spare_lines_come_last(void **state) {
    Policy policy = evicting(MINUTE_MS);
    Zone *zone = make_zone(SPARE_ZONE_BYTES);
    uint64_t key = 0;

    (void)state;

    while (spare_in_use(zone) == 0 && key < stats_of(zone).slots) {
        assert_true(admits(zone, &policy, key, 1, 1, NOW_MS));
        key++;
    }

    /* the last one is the first whose six lines were full: of 62 most are */

    assert_in_range(key, 62 * Line::kSlots * 2 / 3, 62 * Line::kSlots);
    assert_int_equal(stats_of(zone).evicted, 0);
    free(zone);
}

/* What constrains least goes, if it is in a spare line as elsewhere. */
static void test_evictions_in_spare_lines(void **state) {
    Policy policy = evicting(MINUTE_MS);
    Zone *zone = make_full_zone(&policy);

    (void)state;

    check_least_go(zone, &policy, 49, NOW_MS);

    assert_false(admits(zone, &policy, FILLER, HEAVY, 1, NOW_MS));
    free(zone);
}

/* A key is refused until the first state among all its places is over, which is
 * in a spare line here. */
static void test_full_deny_in_spare_lines(void **state) {
    Policy policy = denying(MINUTE_MS);
    Zone *zone = make_zone(SPARE_ZONE_BYTES);
    Claim claim;
    Verdict verdict;

    (void)state;

    fill_but_spare(zone, &policy, HEAVY, HEAVY, NOW_MS);

    for (uint64_t key = 0; key < PAIR_SLOTS; key++) {
        uint64_t then_ms = NOW_MS - (key == 3 ? MINUTE_MS : 0);

        assert_true(admits(zone, &policy, key, 10, 1, then_ms));
    }

    claim = acquire(zone, &policy, 100, 10, 1, NOW_MS);
    assert_int_equal(claim.outcome, Outcome::kRefused);
    verdict = claim.describe(NOW_MS);
    assert_int_equal(verdict.retry_after_ms, 1000 + BEHIND_MS);
    assert_true(admits(zone, &policy, 7, 10, 1, NOW_MS));

    assert_true(admits(zone, &policy, 100, 10, 1, NOW_MS + 1000 + BEHIND_MS));
    assert_int_equal(acquire(zone, &policy, 101, 10, 1, NOW_MS + 1000 + BEHIND_MS).outcome,
                     Outcome::kRefused);
    assert_int_equal(stats_of(zone).refused, 2);
    assert_int_equal(stats_of(zone).evicted, 0);
    free(zone);
}

/* ---- two processes ---- */

#define LIMIT 1000
#define KEYS 6

struct shared_t {
    std::atomic_uint arrived[KEYS];
    std::atomic_uint admitted[KEYS];
};

static void demand_all(Zone *zone, const Policy *policy, shared_t *shared) {
    for (unsigned key = 0; key < KEYS; key++) {
        shared->arrived[key]++;

        while (shared->arrived[key] < 2) {
            /* both are to begin at the same moment, which sleepers would miss */
            sched_yield();
        }

        for (unsigned i = 0; i < LIMIT; i++) {
            shared->admitted[key] += (unsigned)admits(zone, policy, key, LIMIT, 1, NOW_MS);
        }
    }
}

/* Both bring the same new keys: none gets a second place in the spare lines, or
 * more than its limit. */
static void test_two_processes_in_spare_lines(void **state) {
    Policy policy = evicting(MINUTE_MS);
    Zone *full = make_full_zone(&policy);
    Zone *zone = share<Zone>(SPARE_ZONE_BYTES);
    shared_t *shared = share<shared_t>(sizeof(*shared));

    (void)state;

    for (unsigned round = 0; round < ROUNDS; round++) {
        pid_t pid;

        memcpy(static_cast<void *>(zone), full, SPARE_ZONE_BYTES);
        new (shared) shared_t{};

        pid = fork();
        assert_true(pid >= 0);

        if (pid == 0) {
            alarm(PATIENCE_S);
            demand_all(zone, &policy, shared);
            _exit(0);
        }

        demand_all(zone, &policy, shared);
        expect_exit(pid, false);

        for (unsigned key = 0; key < KEYS; key++) {
            assert_int_equal(shared->admitted[key], LIMIT);
            assert_int_equal(remaining_of(zone, &policy, key, LIMIT, NOW_MS), 0);
        }

        assert_int_equal(stats_of(zone).evicted, 0);
        assert_int_equal(count_of(zone, &policy, NOW_MS), count_of(full, &policy, NOW_MS) + KEYS);
    }

    munmap(shared, sizeof(*shared));
    munmap(zone, SPARE_ZONE_BYTES);
    free(full);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_without_spare_lines),
        cmocka_unit_test(test_keys_in_spare_lines_are_found),
        cmocka_unit_test(test_spare_lines_come_last),
        cmocka_unit_test(test_evictions_in_spare_lines),
        cmocka_unit_test(test_full_deny_in_spare_lines),
        cmocka_unit_test(test_two_processes_in_spare_lines),
    };

    return cmocka_run_group_tests_name("spare", tests, NULL, NULL);
}
