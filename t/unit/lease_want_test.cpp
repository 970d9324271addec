/* Copyright (C) the limit_sliding authors */

/* Leases: how many units are asked for, if any, at whatever time. */

#include "leases.hpp"

#define AUTO kLeaseAuto
#define LIMIT 1000
#define KEY 7
#define MARGIN_MS 12 /* for clocks, at the end of a part */

static const told_t usual = {SERVER_MS, LIMIT, 900, 5000};

/* A group has two leases; who asked within LEASE_MS keeps his. */
static void keeps_what_is_in_use(void **state) {
    Leases *leases = make_leases(1);
    Policy policy = fixed_of(DAY_MS);
    Claim claims[4];

    (void)state;

    for (uint64_t key = 0; key < LENGTH(claims); key++) {
        claims[key] = lease_claim(&policy, key, 1);
        lease_add(leases, &claims[key], usual, 10, NOW_MS + key, NOW_MS + key);
    }

    assert_true(lease_spend(leases, &claims[0], NOW_MS + 10));
    assert_true(lease_spend(leases, &claims[1], NOW_MS + 10));
    assert_false(lease_spend(leases, &claims[2], NOW_MS + 10));
    assert_int_equal(leases->want(claims[2], 50, 1, NOW_MS + 10), 0);

    lease_add(leases, &claims[2], usual, 10, NOW_MS + LEASE_MS, NOW_MS + LEASE_MS);
    assert_true(lease_spend(leases, &claims[2], NOW_MS + LEASE_MS));
    assert_false(lease_spend(leases, &claims[0], NOW_MS + LEASE_MS));
    assert_true(lease_spend(leases, &claims[1], NOW_MS + LEASE_MS));

    free(leases);
}

static void fills_up_to_a_fixed_size(void **state) {
    Leases *leases = make_leases(1);
    Policy policy = fixed_of(DAY_MS);
    Claim claim = lease_claim(&policy, KEY, 1);
    told_t end = usual;

    (void)state;

    assert_int_equal(leases->want(claim, 50, 1, NOW_MS), 49);
    assert_int_equal(leases->want(claim, 50, 50, NOW_MS), 0);
    assert_int_equal(leases->want(claim, 50, 70, NOW_MS), 0);
    assert_int_equal(leases->want(claim, 1, 1, NOW_MS), 0);

    lease_add(leases, &claim, usual, 49, NOW_MS, NOW_MS);
    assert_int_equal(leases->want(claim, 50, 1, NOW_MS), 0);
    assert_true(lease_spend(leases, &claim, NOW_MS));
    assert_true(lease_spend(leases, &claim, NOW_MS));
    assert_int_equal(leases->want(claim, 50, 1, NOW_MS), 2);

    /* what has lapsed is not had */
    end.now_ms = PRESENT * DAY_MS - 100;
    lease_add(leases, &claim, end, 49, NOW_MS, NOW_MS);
    assert_int_equal(leases->want(claim, 50, 1, NOW_MS), 0);
    assert_int_equal(leases->want(claim, 50, 1, NOW_MS + 100), 49);

    free(leases);
}

static uint32_t wanted(const told_t *told, uint64_t window_ms, uint32_t needed, uint64_t after_ms) {
    Leases *leases = make_leases(1);
    Policy policy = fixed_of(window_ms);
    Claim claim = lease_claim(&policy, KEY, 1);
    uint32_t units;

    /* of a key seen first nothing is known */
    assert_int_equal(leases->want(claim, AUTO, needed, NOW_MS), 0);

    lease_add(leases, &claim, *told, 0, NOW_MS, NOW_MS + 1);
    units = leases->want(claim, AUTO, needed, NOW_MS + after_ms);
    free(leases);

    return units;
}

static void follows_demand(void **state) {
    told_t plenty = {SERVER_MS, LIMIT_MAX, LIMIT_MAX, 0};
    told_t near_end = {SERVER_MS, LIMIT, 319, 0};
    told_t single = {SERVER_MS, LIMIT, 31, 0};
    told_t last = {PRESENT * DAY_MS - 60, LIMIT_MAX, LIMIT_MAX, 0};

    (void)state;

    /* as many as 250 ms would use, twice the demand at most */
    assert_int_equal(wanted(&plenty, DAY_MS, 100, 250), 100);
    assert_int_equal(wanted(&plenty, DAY_MS, 100, 500), 50);
    assert_int_equal(wanted(&plenty, DAY_MS, 100, 10), 200);
    assert_int_equal(wanted(&plenty, DAY_MS, 100, 0), 200);

    /* slow keys */
    assert_int_equal(wanted(&plenty, DAY_MS, 2, 501), 0);
    assert_int_equal(wanted(&plenty, DAY_MS, 3, 100000), 0);

    /* a 128th of a short window: 10 s have 78 ms, 100 ms have none */
    assert_int_equal(wanted(&plenty, 10000, 100, 100), 78);
    assert_int_equal(wanted(&plenty, 100, 100, 1), 0);

    /* little is left in Redis */
    assert_int_equal(wanted(&near_end, DAY_MS, 100, 10), 9);
    assert_int_equal(wanted(&single, DAY_MS, 100, 10), 0);

    /* little is left of the window: 10 of 50 ms, or so */
    assert_in_range(wanted(&last, DAY_MS, 100, 40), 1, 50);
    /* the next one lasts a day */
    assert_int_equal(wanted(&last, DAY_MS, 100, 125), 200);
}

/* For a request of that cost that comes alone, as the last two did. */
static uint32_t wanted_alone(uint32_t cost, uint64_t window_ms, uint64_t before_ms,
                             uint64_t after_ms) {
    Leases *leases = make_leases(1);
    Policy policy = fixed_of(window_ms);
    Claim claim = lease_claim(&policy, KEY, cost);
    told_t told = {SERVER_MS, LIMIT_MAX, LIMIT_MAX, 0};
    uint32_t units;

    lease_add(leases, &claim, told, 0, NOW_MS - before_ms, NOW_MS - before_ms);
    lease_add(leases, &claim, told, 0, NOW_MS, NOW_MS + 1);
    units = leases->want(claim, AUTO, cost, NOW_MS + after_ms);
    free(leases);

    return units;
}

static void needs_three_requests(void **state) {
    told_t plenty = {SERVER_MS, LIMIT_MAX, LIMIT_MAX, 0};

    (void)state;

    /* two may come by chance */
    assert_int_equal(wanted(&plenty, DAY_MS, 1, 1), 0);

    /* three of them in a second, the last two in half of it: one more */
    assert_int_equal(wanted_alone(1, DAY_MS, 10, 1), 1);
    assert_int_equal(wanted_alone(1, DAY_MS, 500, 500), 1);
    assert_int_equal(wanted_alone(1, DAY_MS, 750, 250), 1);
    assert_int_equal(wanted_alone(1, DAY_MS, 751, 250), 0);
    assert_int_equal(wanted_alone(1, DAY_MS, 10, 501), 0);
    assert_int_equal(wanted_alone(1, DAY_MS, 1ull << 26, 1), 0);
    assert_int_equal(wanted_alone(1, DAY_MS, 5, UINT64_MAX - NOW_MS), 0);

    /* in shorter windows, within four times the 128th of them */
    assert_int_equal(wanted_alone(1, 12800, 300, 100), 1);
    assert_int_equal(wanted_alone(1, 12800, 301, 100), 0);
    assert_int_equal(wanted_alone(1, 12800, 10, 201), 0);
    assert_int_equal(wanted_alone(1, 100, 1, 1), 0);

    /* of whatever cost */
    assert_int_equal(wanted_alone(50, DAY_MS, 500, 500), 50);
    assert_int_equal(wanted_alone(50, DAY_MS, 10, 501), 0);
}

/* The same bounds at random, and in numbers wide enough for all of them. */
static void never_asks_for_too_much(void **state) {
    static const uint32_t sizes[] = {1, 50, LIMIT_MAX, AUTO};
    uint64_t random = 7;
    unsigned some = 0, lone = 0;

    (void)state;

    for (unsigned i = 0; i < 300000; i++) {
        Leases *leases = make_leases(1);
        Policy policy = fixed_of(random_window_ms(&random));
        Claim claim = lease_claim(&policy, KEY, 1);
        uint32_t size = sizes[random_below(&random, LENGTH(sizes))];
        uint32_t needed = (uint32_t)random_scale(&random, 1, LIMIT_MAX);
        uint32_t units = (uint32_t)random_scale(&random, 1, LIMIT_MAX) - 1;
        uint64_t sent_ms = i % 2 ? NOW_MS : random_time(&random);
        uint64_t now_ms = random_time(&random);
        told_t told = {random_next(&random) >> 20, LIMIT_MAX,
                       (uint32_t)random_scale(&random, 1, LIMIT_MAX), 0};
        uint64_t parts = 1 + random_below(&random, 60);
        uint64_t left_ms, elapsed_ms, used = needed, want;

        policy.precision = (uint32_t)parts;
        policy.algorithm = i % 3 ? Algorithm::kCounter : Algorithm::kFixed;
        parts = i % 3 ? parts : 1;
        left_ms = part_left_ms(policy.window_ms, parts, told.now_ms);

        if (i % 4 == 1) {
            needed = used = 1;
            units = 0;
            lease_add(leases, &claim, told, 0, sent_ms - i % 1000, sent_ms - i % 1000);
        }

        lease_add(leases, &claim, told, units, sent_ms, sent_ms);

        if (now_ms < sent_ms + LEASE_MS / 2 && units > 10) {
            claim.cost = units / 2;
            used += lease_spend(leases, &claim, now_ms) ? claim.cost : 0;
            claim.cost = 1;
        }

        want = leases->want(claim, size, needed, now_ms);
        some += want > 0;

        if (size != AUTO) {
            assert_in_range(want, 0, size);
        } else if (want > 0) {
            elapsed_ms = now_ms > sent_ms ? now_ms - sent_ms : 1;
            assert_in_range(want, 1, used > 1 ? 2 * used : 1);
            assert_in_range(want, 1, told.remaining / 32);

            /* a lone request has twice the time */
            lone += used == 1;
            used += used == 1;

            assert_true((unsigned __int128)want * elapsed_ms <= used * 250);
            assert_true(want * elapsed_ms <= used * (policy.window_ms / parts / 128));

            if (elapsed_ms + MARGIN_MS < left_ms && now_ms >= sent_ms) {
                assert_true(want * elapsed_ms <= used * (left_ms - elapsed_ms));
            }
        }

        free(leases);
    }

    assert_in_range(some, 30000, 300000);
    assert_in_range(lone, 300, 300000);
}

/* Nothing but its own units is spent, whatever time it is said to be. */
static void survives_any_time(void **state) {
    uint64_t random = 3;

    (void)state;

    for (unsigned i = 0; i < 100000; i++) {
        Leases *leases = make_leases(1);
        Policy policy = fixed_of(random_window_ms(&random));
        Claim claim = lease_claim(&policy, KEY, 1);
        uint64_t sent_ms = random_time(&random), spent = 0;
        told_t told = {random_time(&random), LIMIT_MAX, LIMIT_MAX, random_window_ms(&random)};

        lease_add(leases, &claim, told, 3, sent_ms, random_time(&random));

        for (unsigned j = 0; j < 8; j++) {
            uint64_t now_ms = random_time(&random);
            int is_spent = lease_spend(leases, &claim, now_ms);

            spent += is_spent != 0;
            assert_false(is_spent && now_ms >= sent_ms && now_ms - sent_ms >= LEASE_MS);
        }

        assert_in_range(spent, 0, 3);
        free(leases);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_what_is_in_use),    cmocka_unit_test(fills_up_to_a_fixed_size),
        cmocka_unit_test(follows_demand),          cmocka_unit_test(needs_three_requests),
        cmocka_unit_test(never_asks_for_too_much), cmocka_unit_test(survives_any_time),
    };

    return cmocka_run_group_tests_name("lease want", tests, NULL, NULL);
}
