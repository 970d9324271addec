/* Copyright (C) the limit_sliding authors */

#include "support.hpp"

/* Late in a window. */
#define NOW_MS (PRESENT * MINUTE_MS + 59000)

/* ---- eviction ---- */

static void test_expired_keys_go_first(void **state) {
    Policy policy = evicting(MINUTE_MS);
    Zone *zone = make_zone(PAIR_BYTES);
    uint64_t later_ms = NOW_MS + 2 * MINUTE_MS;

    (void)state;

    /* keys 0 and 1, the heaviest, are over when the others come */

    for (uint64_t key = 0; key < PAIR_SLOTS; key++) {
        assert_true(
            admits(zone, &policy, key, 100, key < 2 ? 100 : 1, key < 2 ? NOW_MS : later_ms));
    }

    assert_true(admits(zone, &policy, 100, 100, 1, later_ms));
    assert_true(admits(zone, &policy, 101, 100, 1, later_ms));
    assert_int_equal(stats_of(zone).evicted, 0);

    for (uint64_t key = 2; key < PAIR_SLOTS; key++) {
        assert_int_equal(remaining_of(zone, &policy, key, 100, later_ms), 99);
    }

    assert_int_equal(remaining_of(zone, &policy, 100, 100, later_ms), 99);
    assert_int_equal(remaining_of(zone, &policy, 0, 100, later_ms), 100);
    free(zone);
}

static void test_what_constrains_least_goes_next(void **state) {
    Policy policy = evicting(MINUTE_MS);
    Zone *zone = make_zone(PAIR_BYTES);

    (void)state;

    check_least_go(zone, &policy, 100, NOW_MS);

    free(zone);
}

/* What decays is compared as of now. */
static void test_eviction_weighs_what_still_counts(void **state) {
    Policy policy = evicting(MINUTE_MS);
    Zone *zone = make_zone(PAIR_BYTES);
    uint64_t later_ms = NOW_MS + MINUTE_MS;

    (void)state;

    /* 59 s into the next window 50 count less than one, 100 more */

    assert_true(admits(zone, &policy, 0, 100, 50, NOW_MS));
    assert_true(admits(zone, &policy, 1, 100, 100, NOW_MS));

    for (uint64_t key = 2; key < PAIR_SLOTS; key++) {
        assert_true(admits(zone, &policy, key, 100, 2, later_ms));
    }

    assert_true(admits(zone, &policy, 100, 100, 2, later_ms));
    assert_int_equal(remaining_of(zone, &policy, 0, 100, later_ms), 100);
    assert_int_equal(remaining_of(zone, &policy, 1, 100, later_ms), 98);

    assert_true(admits(zone, &policy, 101, 100, 2, later_ms));
    assert_int_equal(remaining_of(zone, &policy, 1, 100, later_ms), 100);
    free(zone);
}

/* 64 pairs of lines; half of the heavy keys were in use long before. */
static void check_flood(Policy policy, size_t slot_bytes) {
    const size_t bytes = 64 * PAIR_SLOTS * slot_bytes;
    Zone *zone = make_zone_for(&policy, kZoneAlign + bytes + PageMarks::bytes_for(bytes));
    uint64_t slots = stats_of(zone).slots;
    uint64_t flood = 1000;

    assert_int_equal(slots, 64 * PAIR_SLOTS);

    for (uint64_t i = 0; i < 70; i++) {
        for (uint64_t key = 0; key < 20; key += 2) {
            assert_true(admits(zone, &policy, key, 100, 1,
                               NOW_MS - 3 * policy.window_ms + i * policy.window_ms / 60));
        }
    }

    for (uint64_t key = 0; key < 20; key++) {
        assert_true(admits(zone, &policy, key, 100, 90, NOW_MS));
    }

    for (uint64_t i = 0; i < 10 * slots; i++) {
        assert_true(admits(zone, &policy, flood++, 100, 1, NOW_MS));
    }

    assert_true(stats_of(zone).evicted >= 9 * slots);

    for (uint64_t key = 0; key < 20; key++) {
        for (unsigned i = 0; i < 10; i++) {
            assert_true(admits(zone, &policy, key, 100, 1, NOW_MS));
            assert_true(admits(zone, &policy, flood++, 100, 1, NOW_MS));
        }
        assert_false(admits(zone, &policy, key, 100, 1, NOW_MS));
    }

    free(zone);
}

static void test_heavy_keys_survive_a_flood(void **state) {
    Policy policy = evicting(60 * MINUTE_MS);

    (void)state;

    check_flood(policy, 16);

    policy.precision = 60;
    check_flood(policy, 512);

    policy.precision = 0;
    policy.algorithm = Algorithm::kLog;
    check_flood(policy, 128);
}

/*
 * 200 keys that have used all of a limit of 10 stay, whatever use many new keys
 * make of a small part of larger limits, and whenever these come.
 */
static void check_flood_of_larger_limits(Policy policy, uint32_t flood_cost,
                                         uint64_t flood_keys_a_ms) {
    Zone *zone = make_zone_for(&policy, 1 << 18);
    uint64_t now_ms = PRESENT * policy.window_ms + 1000;
    uint64_t capacity = policy.capacity(10);
    unsigned kept = 0;

    for (uint64_t key = 0; key < 200; key++) {
        while (admits(zone, &policy, key, 10, 1, now_ms)) {}
    }

    for (uint64_t i = 0; i < 40000; i++) {
        admits(zone, &policy, 1000 + i, 1000, flood_cost, now_ms + i / flood_keys_a_ms);
    }

    assert_true(stats_of(zone).evicted > 20000);
    now_ms += 40000 / flood_keys_a_ms;

    for (uint64_t key = 0; key < 200; key++) {
        kept += remaining_of(zone, &policy, key, 10, now_ms) < capacity;
    }

    assert_in_range(kept, 190, 200);
    free(zone);
}

static void test_small_limits_survive_a_flood_of_larger(void **state) {
    static const Policy policies[] = {
        {MINUTE_MS, Algorithm::kCounter},
        {MINUTE_MS, Algorithm::kFixed},
        {MINUTE_MS, Algorithm::kTokenBucket},
        {MINUTE_MS, Algorithm::kTokenBucket, WhenFull::kEvict, 0, 100},
        {DAY_MS, Algorithm::kTokenBucket},
        {MINUTE_MS, Algorithm::kLeakyBucket, WhenFull::kEvict, 0, 50},
    };

    (void)state;

    for (size_t i = 0; i < LENGTH(policies); i++) {
        check_flood_of_larger_limits(policies[i], 1, 4);
        check_flood_of_larger_limits(policies[i], 15, 4);
        check_flood_of_larger_limits(policies[i], 15, 40000);
    }
}

/* ---- full=deny ---- */

static void fill(Zone *zone, const Policy *policy) {
    for (uint64_t key = 0; key < PAIR_SLOTS; key++) {
        uint64_t then_ms = NOW_MS - (key == 3 ? MINUTE_MS : 0);

        assert_true(admits(zone, policy, key, 10, 1, then_ms));
    }
}

static void test_full_deny_refuses_new_keys(void **state) {
    Policy policy = denying(MINUTE_MS);
    Zone *zone = make_zone(PAIR_BYTES);
    Claim claim;
    Verdict v;

    (void)state;

    /* key 3 goes first: its window ends in a second, by the clock of a worker that is
     * behind a little later */

    fill(zone, &policy);

    claim = acquire(zone, &policy, 100, 10, 1, NOW_MS);
    assert_int_equal(claim.outcome, Outcome::kRefused);
    assert_int_equal(stats_of(zone).refused, 1);
    assert_int_equal(stats_of(zone).evicted, 0);

    v = claim.describe(NOW_MS);
    assert_int_equal(v.limit, 10);
    assert_int_equal(v.remaining, 0);
    assert_int_equal(v.retry_after_ms, 1000 + BEHIND_MS);

    assert_false(admits(zone, &policy, 100, 10, 1, NOW_MS + 999 + BEHIND_MS));
    assert_true(admits(zone, &policy, 100, 10, 1, NOW_MS + 1000 + BEHIND_MS));
    assert_int_equal(stats_of(zone).refused, 2);

    claim = acquire(zone, &policy, 101, 10, 1, NOW_MS + 1000 + BEHIND_MS);
    assert_int_equal(claim.outcome, Outcome::kRefused);
    v = claim.describe(NOW_MS + 1000 + BEHIND_MS);
    assert_int_equal(v.retry_after_ms, MINUTE_MS);
    free(zone);
}

static void test_full_deny_goes_on_with_known_keys(void **state) {
    Policy policy = denying(MINUTE_MS);
    Zone *zone = make_zone(PAIR_BYTES);

    (void)state;

    fill(zone, &policy);

    for (uint64_t key = 0; key < PAIR_SLOTS; key++) {
        for (unsigned i = 0; i < 9; i++) {
            assert_false(admits(zone, &policy, 100 + i, 10, 1, NOW_MS));
            assert_true(admits(zone, &policy, key, 10, 1, NOW_MS));
        }
        assert_int_equal(acquire(zone, &policy, key, 10, 1, NOW_MS).outcome, Outcome::kRejected);
    }

    assert_int_equal(stats_of(zone).refused, 9 * PAIR_SLOTS);
    free(zone);
}

/* Neither a look nor what is never admitted needs a place. */
static void test_full_deny_answers_who_needs_no_slot(void **state) {
    Policy policy = denying(MINUTE_MS);
    Zone *zone = make_zone(PAIR_BYTES);

    (void)state;

    fill(zone, &policy);

    assert_int_equal(acquire(zone, &policy, 100, 10, 0, NOW_MS).outcome, Outcome::kAdmitted);
    assert_int_equal(acquire(zone, &policy, 100, 10, 11, NOW_MS).outcome, Outcome::kRejected);
    assert_int_equal(stats_of(zone).refused, 0);
    free(zone);
}

/* Nor can a new key be charged. */
static void test_full_deny_charges_nothing(void **state) {
    Policy policy = denying(MINUTE_MS);
    Zone *zone = make_zone(PAIR_BYTES);

    (void)state;

    fill(zone, &policy);

    alignas(64) static char memory[64 * 1024];
    Claim claim = claim_of(zone, &policy, 100, 10, 1);
    claim.debts = Debts::init(memory, sizeof(memory));
    assert_int_equal(charge(consume_by_history(policy, 10), claim, 3, NOW_MS), 3);
    assert_int_equal(remaining_of(zone, &policy, 100, 10, NOW_MS), 10);
    free(zone);
}

static void test_a_refusal_consumes_nothing_elsewhere(void **state) {
    Policy policy = denying(MINUTE_MS);
    Zone *first = make_zone(PAIR_BYTES);
    Zone *full = make_zone(PAIR_BYTES);
    Claim claims[3];
    Verdict verdict;
    size_t index;

    (void)state;

    fill(full, &policy);

    claims[0] = claim_of(first, &policy, 1, 5, 2);
    claims[1] = claim_of(full, &policy, 100, 5, 2);
    claims[2] = claim_of(first, &policy, 2, 5, 2);

    index = limit_sliding::acquire(claims, 3, NOW_MS);

    assert_int_equal(index, 1);
    assert_int_equal(claims[1].outcome, Outcome::kRefused);
    assert_int_equal(remaining_of(first, &policy, 1, 5, NOW_MS), 5);
    assert_int_equal(remaining_of(first, &policy, 2, 5, NOW_MS), 5);
    assert_int_equal(count_of(first, &policy, NOW_MS), 0);

    /* nor is it told to have been consumed */

    verdict = claims[0].describe(NOW_MS);
    assert_int_equal(verdict.remaining, 5);

    /* the same if it is given back later */

    claims[0] = acquire(first, &policy, 1, 5, 2, NOW_MS);
    limit_sliding::release(claims, 1, NOW_MS);
    verdict = claims[0].describe(NOW_MS);
    assert_int_equal(verdict.remaining, 5);

    free(first);
    free(full);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expired_keys_go_first),
        cmocka_unit_test(test_what_constrains_least_goes_next),
        cmocka_unit_test(test_eviction_weighs_what_still_counts),
        cmocka_unit_test(test_heavy_keys_survive_a_flood),
        cmocka_unit_test(test_small_limits_survive_a_flood_of_larger),
        cmocka_unit_test(test_full_deny_refuses_new_keys),
        cmocka_unit_test(test_full_deny_goes_on_with_known_keys),
        cmocka_unit_test(test_full_deny_answers_who_needs_no_slot),
        cmocka_unit_test(test_full_deny_charges_nothing),
        cmocka_unit_test(test_a_refusal_consumes_nothing_elsewhere),
    };

    return cmocka_run_group_tests_name("full", tests, NULL, NULL);
}
