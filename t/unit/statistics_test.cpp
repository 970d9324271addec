/* Copyright (C) the limit_sliding authors */

/* What is counted of a zone and its slots. */

#include "zone_memory.hpp"

static void sums_counters(void **state) {
    ZoneMemory memory = make_memory(ZONE_BYTES);
    Statistics sum;

    (void)state;

    for (size_t i = 0; i < memory.nstatistics; i++) {
        memory.counters[i].requests[kCountPassed] = i;
        memory.counters[i].sources[kRemoteSources - 1] = 2;
        memory.counters[i].slots.refused = 1;
    }

    sum = sum_of(memory.counters, memory.nstatistics);

    assert_int_equal(sum.requests[kCountPassed], 31 * 32 / 2);
    assert_int_equal(sum.requests[kCountDelayed], 0);
    assert_int_equal(sum.sources[kRemoteSources - 1], 64);
    assert_int_equal(sum.slots.refused, 32);

    free_memory(&memory, ZONE_BYTES);
}

/* Each value is in the bucket of the least bound that is not below it. */
static void counts_times(void **state) {
    ZoneMemory memory = make_memory(ZONE_BYTES);
    uint64_t told[LENGTH(kDecisionsNs)];
    size_t ntold = 0;

    (void)state;

    for (uint64_t ns : {0ul, 249ul, 250ul, 251ul, 10'000'000ul, 10'000'001ul, 1ul << 40}) {
        memory.times->add(ns);
    }

    const DecisionTimes both[] = {*memory.times, *memory.times};
    const DecisionTimes sum = sum_of(both, LENGTH(both));
    sum.for_each([&](uint64_t n, uint64_t) { told[ntold++] = n; });

    assert_int_equal(ntold, LENGTH(kDecisionsNs));
    assert_int_equal(told[0], 2 * 3);
    assert_int_equal(told[1], 2 * 4);
    assert_int_equal(told[ntold - 2], 2 * 4);
    assert_int_equal(told[ntold - 1], 2 * 5);
    assert_int_equal(sum.n(), 2 * 7);
    assert_int_equal(sum.sum, 2 * (750 + 20'000'001 + (1ul << 40)));

    free_memory(&memory, ZONE_BYTES);
}

/* A claim counts where it says, and nowhere else. */
static void counts_slots_where_it_is_told(void **state) {
    Policy policies[] = {evicting(MINUTE_MS), denying(MINUTE_MS)};

    (void)state;

    for (int i = 0; i < 2; i++) {
        Zone *zone = make_zone_for(&policies[i], PAIR_BYTES);
        SlotCounts counts = {0};

        for (uint64_t key = 0; key < 20; key++) {
            Claim claim = claim_of(zone, &policies[i], key, 5, 1);

            claim.counts = &counts;
            limit_sliding::acquire(&claim, 1, NOW_MS);
            limit_sliding::acquire(&claim, 1, NOW_MS);
        }

        assert_int_equal(counts.used, PAIR_SLOTS);
        assert_int_equal(stats_of(zone).used, 0);
        assert_int_equal(stats_of(zone).evicted, 0);
        assert_int_equal(stats_of(zone).refused, 0);
        assert_int_equal(i == 0 ? counts.evicted : counts.refused,
                         i == 0 ? 20 - PAIR_SLOTS : 2 * (20 - PAIR_SLOTS));

        free(zone);
    }
}

static void estimates_keys(void **state) {
    Policy policy = evicting(MINUTE_MS);
    Zone *zone = make_zone(ZONE_BYTES);
    uint64_t bytes = ZONE_BYTES / 8;
    uint64_t used, keys;

    (void)state;

    for (uint64_t key = 0; key < 40000; key++) {
        assert_true(admits(zone, &policy, key, 5, 1, NOW_MS));
    }

    used = stats_of(zone).used;
    assert_int_equal(used, 40000);

    assert_int_equal(zone->keys(policy, NOW_MS, 1, used, ZONE_BYTES), 40000);
    assert_int_equal(zone->keys(policy, NOW_MS, 1, used, bytes), 40000);

    for (uint64_t key = 0; key < 40000; key += 4) {
        assert_true(admits(zone, &policy, key, 5, 1, NOW_MS + 2 * MINUTE_MS));
    }

    assert_int_equal(stats_of(zone).used, used);

    keys = zone->keys(policy, NOW_MS + 2 * MINUTE_MS, 1, used, bytes);
    assert_in_range(keys, 9000, 11000);

    assert_int_equal(zone->keys(policy, NOW_MS + 9 * MINUTE_MS, 1, used, bytes), 0);
    free(zone);
}

/* A part of the lines stands for all, in each algorithm; all lines are counted exactly. */
static void estimates_keys_of_each_algorithm(void **) {
    static const Policy policies[] = {
        {MINUTE_MS, Algorithm::kCounter, WhenFull::kEvict, 0, 0},
        {MINUTE_MS, Algorithm::kCounter, WhenFull::kEvict, 60, 0},
        {MINUTE_MS, Algorithm::kLog, WhenFull::kEvict, 0, 0},
        {MINUTE_MS, Algorithm::kFixed, WhenFull::kEvict, 0, 0},
        {.window_ms = 30ull * DAY_MS, .algorithm = Algorithm::kFixed, .calendar = Calendar::kMonth},
        {MINUTE_MS, Algorithm::kTokenBucket, WhenFull::kEvict, 0, 0},
    };

    for (const Policy &policy : policies) {
        Zone *zone = make_zone_for(&policy, ZONE_BYTES / 64);
        const uint64_t slots = stats_of(zone).slots;

        for (uint64_t key = 0; key < 10 * slots; key++) {
            assert_true(admits(zone, &policy, key, 5, 1, NOW_MS));
        }

        assert_int_equal(zone->keys(policy, NOW_MS, 5, 1000000, UINT64_MAX), slots);
        assert_int_equal(zone->keys(policy, NOW_MS, 5, 1000000, Line::kSlots * zone->slot_bytes),
                         1000000);
        free(zone);
    }
}

/* Keys by their used share: key i has used i of 10 units, in each algorithm. */
static void shares_keys(void **) {
    static const Policy policies[] = {
        {MINUTE_MS, Algorithm::kCounter, WhenFull::kEvict, 0, 0},
        {MINUTE_MS, Algorithm::kCounter, WhenFull::kEvict, 60, 0},
        {MINUTE_MS, Algorithm::kLog, WhenFull::kEvict, 0, 0},
        {MINUTE_MS, Algorithm::kFixed, WhenFull::kEvict, 0, 0},
        {MINUTE_MS, Algorithm::kTokenBucket, WhenFull::kEvict, 0, 0},
        {MINUTE_MS, Algorithm::kLeakyBucket, WhenFull::kEvict, 0, 9},
    };
    static const uint64_t bands[] = {1, 2, 2, 2, 2, 1}; /* 1, 2-3, 4-5, 6-7, 8-9, 10 */

    for (const Policy &policy : policies) {
        Zone *zone = make_zone_for(&policy, ZONE_BYTES);
        KeyShares shares;

        for (uint64_t key = 1; key <= 10; key++) {
            for (uint64_t n = 0; n < key; n++) {
                assert_true(admits(zone, &policy, key, 10, 1, NOW_MS));
            }
        }

        assert_int_equal(zone->keys(policy, NOW_MS, 10, 10, UINT64_MAX, &shares), 10);
        for (size_t i = 0; i < KeyShares::kBands; i++) {
            assert_int_equal(shares.keys[i], bands[i]);
        }
        free(zone);
    }
}

static void forgets_a_key(void **state) {
    static const Policy policies[] = {
        {MINUTE_MS, Algorithm::kCounter, WhenFull::kEvict, 0, 0},
        {MINUTE_MS, Algorithm::kCounter, WhenFull::kEvict, 10, 0},
        {MINUTE_MS, Algorithm::kLog, WhenFull::kEvict, 0, 0},
        {MINUTE_MS, Algorithm::kFixed, WhenFull::kEvict, 0, 0},
        {MINUTE_MS, Algorithm::kTokenBucket, WhenFull::kEvict, 0, 0},
        {MINUTE_MS, Algorithm::kLeakyBucket, WhenFull::kEvict, 0, 4},
    };

    (void)state;

    for (size_t i = 0; i < LENGTH(policies); i++) {
        Zone *zone = make_zone_for(&policies[i], ZONE_BYTES);
        Claim claim = claim_of(zone, &policies[i], 1, 5, 1);

        claim.forget(NOW_MS);

        for (int turn = 0; turn < 3; turn++) {
            for (int n = 0; n < 5; n++) {
                assert_true(admits(zone, &policies[i], 1, 5, 1, NOW_MS));
            }
            assert_false(admits(zone, &policies[i], 1, 5, 1, NOW_MS));

            claim.forget(NOW_MS);
            assert_int_equal(count_of(zone, &policies[i], NOW_MS), 0);
        }

        assert_int_equal(stats_of(zone).used, 1);
        free(zone);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_counters),
        cmocka_unit_test(counts_times),
        cmocka_unit_test(counts_slots_where_it_is_told),
        cmocka_unit_test(estimates_keys),
        cmocka_unit_test(estimates_keys_of_each_algorithm),
        cmocka_unit_test(shares_keys),
        cmocka_unit_test(forgets_a_key),
    };

    return cmocka_run_group_tests_name("counters", tests, NULL, NULL);
}
