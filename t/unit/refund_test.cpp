/* Copyright (C) the limit_sliding authors */

#include "support.hpp"

static void test_refund(void **state) {
    Policy policy = evicting(MINUTE_MS);
    uint64_t now_ms = PRESENT * MINUTE_MS;
    State recorded, later, next;

    (void)state;

    /* at once, and after another request */

    assert_true(pure::admit(policy, history(&policy, 3, 1), now_ms + 59999, 9, 2, &recorded));
    assert_int_equal(unranked(refund(&policy, recorded, now_ms, recorded, 2)),
                     history(&policy, 3, 1));

    assert_true(pure::admit(policy, recorded, now_ms + 59999, 9, 3, &later));
    assert_int_equal(unranked(refund(&policy, later, now_ms, recorded, 2)), history(&policy, 3, 4));

    /* the next window has begun: it is the previous one's count */

    recorded = history(&policy, 3, 4);
    assert_true(pure::admit(policy, recorded, now_ms + 119999, 9, 5, &later));
    assert_int_equal(
        expires_ms(&policy, refund(&policy, later, now_ms, recorded, 4), now_ms + 2 * MINUTE_MS),
        60000);
    later = refund(&policy, later, now_ms, recorded, 4);
    assert_true(pure::admit(policy, later, now_ms + MINUTE_MS, 5, 0, &next));
    assert_false(pure::admit(policy, later, now_ms + MINUTE_MS, 5, 1, &next));
}

static void test_refund_takes_no_more_than_counts(void **state) {
    Policy policy = evicting(MINUTE_MS);
    uint64_t now_ms = PRESENT * MINUTE_MS;
    State recorded = history(&policy, 3, 4);
    State later = 0;
    State next = 0;

    (void)state;

    assert_true(pure::admit(policy, recorded, (PRESENT + 2) * MINUTE_MS, 9, 5, &later));
    assert_int_equal(refund(&policy, later, now_ms, recorded, 4), later);

    later = refund(&policy, recorded, now_ms, recorded, 9);
    assert_int_equal(expires_ms(&policy, later, PRESENT * MINUTE_MS), 60000);
    assert_true(pure::admit(policy, later, PRESENT * MINUTE_MS, 3, 0, &next));
    assert_false(pure::admit(policy, later, PRESENT * MINUTE_MS, 3, 1, &next));
}

/* There is nothing to take where there are no counts, nor from a damaged state without a kind. */
static void test_refund_of_no_counts(void **state) {
    State next;

    (void)state;

    for (State none : {0, 5}) {
        assert_false(Counter::refund_soon(none, none, 1, &next));
    }
}

/* The state of an empty bucket is one, where its time wraps to 0 as well. */
static void test_refund_at_time_0(void **state) {
    Policy policy = {.window_ms = MINUTE_MS, .algorithm = Algorithm::kTokenBucket};
    const uint64_t now_ms = 5ull << 24;
    State recorded, next;

    (void)state;

    assert_true(pure::admit(policy, 0, now_ms, 5, 2, &recorded));
    next = pure::refund(policy, recorded, now_ms, 5, recorded, 2);
    assert_int_not_equal(next, 0);
    assert_int_equal(pure::describe(policy, next, now_ms + 1, 5, 1).remaining, 5);
}

/* Every window's number must do, where it wraps as well. */
static void test_refund_across_the_wrap(void **state) {
    Policy policy = evicting(100);
    State recorded = 0, later = 0, next = 0;
    uint64_t now_ms = ((1 << 13) - 1) * 100ull;

    (void)state;

    assert_true(pure::admit(policy, 0, now_ms, 4, 4, &recorded));
    assert_true(pure::admit(policy, recorded, now_ms + 199, 4, 1, &later));
    later = refund(&policy, later, now_ms, recorded, 4);
    assert_int_equal(expires_ms(&policy, later, now_ms + 199), 101);
    assert_true(pure::admit(policy, later, now_ms + 100, 4, 3, &next));
}

/*
 * A refund leaves what would have been there without the request, whenever it
 * comes and whatever was admitted since.
 */
static void test_refund_of_any_at_any_time(void **state) {
    uint64_t random = 1;

    (void)state;

    for (unsigned n = 0; n < 20000; n++) {
        Policy policy = evicting(100 + (random_next(&random) >> 32) % kWindowMaxMs);
        uint64_t w = policy.window_ms;
        uint64_t now_ms = random_next(&random) >> 20;
        uint32_t cost = (uint32_t)random_below(&random, 1000) + 1;
        State with = 0, without = 0, recorded;
        Verdict refunded, expected;

        assert_true(pure::admit(policy, 0, now_ms, LIMIT_MAX, cost, &recorded));
        with = recorded;

        for (size_t i = random_below(&random, 4); i > 0; i--) {
            now_ms += random_below(&random, w);
            pure::admit(policy, with, now_ms, LIMIT_MAX, 7, &with);
            pure::admit(policy, without, now_ms, LIMIT_MAX, 7, &without);
        }

        with = refund(&policy, with, now_ms, recorded, cost);
        refunded = pure::describe(policy, with, now_ms, 5000, 1);
        expected = pure::describe(policy, without, now_ms, 5000, 1);
        assert_true(memcmp(&refunded, &expected, sizeof(expected)) == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refund),
        cmocka_unit_test(test_refund_takes_no_more_than_counts),
        cmocka_unit_test(test_refund_of_no_counts),
        cmocka_unit_test(test_refund_at_time_0),
        cmocka_unit_test(test_refund_across_the_wrap),
        cmocka_unit_test(test_refund_of_any_at_any_time),
    };

    return cmocka_run_group_tests_name("refund", tests, NULL, NULL);
}
