/* Copyright (C) the limit_sliding authors */

#include "support.hpp"

#define MONTH 2592000000 /* in milliseconds */
#define NEVER kNever

struct example_t {
    uint64_t window_ms;
    uint32_t limit;
    uint32_t previous;
    uint32_t current;
    uint64_t at_ms; /* of the present window */
    uint32_t cost;

    int admitted;
    Verdict verdict; /* before it; limit is left out */
};

static const example_t examples[] = {
    /* the one of the issue: 3 x 0.75 + 1 + 1 = 4.25 */
    {60000, 4, 3, 1, 15000, 1, 0, {0, 0, 250, 5000, 5000}},
    /* 3 x 2/3 + 1 + 1 = 4, and one millisecond earlier */
    {60000, 4, 3, 1, 20000, 1, 1, {0, 1, 0, 20000, 0}},
    {60000, 4, 3, 1, 19999, 1, 0, {0, 0, 1, 1, 1}},
    {60000, 4, 3, 1, 15000, 2, 0, {0, 0, 1250, 5000, 25000}},
    /* nothing yet */
    {60000, 4, 0, 0, 0, 1, 1, {0, 4, 0, 0, 0}},
    {60000, 4, 0, 0, 59999, 4, 1, {0, 4, 0, 0, 0}},
    /* a full window ends: all of it counts at first, a trace at last */
    {60000, 4, 4, 0, 0, 1, 0, {0, 0, 1000, 15000, 15000}},
    {60000, 4, 4, 0, 14999, 1, 0, {0, 0, 1, 1, 1}},
    {60000, 4, 4, 0, 15000, 1, 1, {0, 1, 0, 15000, 0}},
    {60000, 4, 4, 0, 59999, 1, 1, {0, 3, 0, 1, 0}},
    {60000, 4, 4, 0, 59999, 4, 0, {0, 3, 1, 1, 1}},
    /* what is current starts to decay when the next window begins */
    {60000, 4, 0, 4, 59999, 1, 0, {0, 0, 1000, 15001, 15001}},
    {60000, 4, 0, 4, 0, 1, 0, {0, 0, 1000, 75000, 75000}},
    {60000, 4, 0, 4, 0, 4, 0, {0, 0, 4000, 75000, 120000}},
    {60000, 4, 0, 3, 0, 1, 1, {0, 1, 0, 80000, 0}},
    {60000, 4, 1, 3, 30000, 1, 0, {0, 0, 500, 30000, 30000}},
    {60000, 4, 2, 2, 0, 3, 0, {0, 0, 3000, 30000, 90000}},
    /* a limit of one lets a request a window through */
    {1000, 1, 1, 0, 500, 1, 0, {0, 0, 500, 500, 500}},
    {1000, 1, 1, 0, 999, 1, 0, {0, 0, 1, 1, 1}},
    {1000, 1, 0, 1, 10, 1, 0, {0, 0, 1000, 1990, 1990}},
    /* the largest numbers: in 617 ms 4194302 decay by less than one */
    {MONTH, 4194302, 4194302, 0, 1, 1, 0, {0, 0, 999, 617, 617}},
    {MONTH, 4194302, 4194302, 0, 618, 1, 1, {0, 1, 0, 618, 0}},
    {MONTH, 4194302, 4194302, 0, 0, 4194302, 0, {0, 0, 4194302000, 618, MONTH}},
    {MONTH, 4194302, 0, 4194302, 0, 1, 0, {0, 0, 1000, 2592000618, 2592000618}},
    {MONTH, 4194302, 0, 0, 5, 4194302, 1, {0, 4194302, 0, 0, 0}},
    /* the shortest window: one millisecond of it is 41943 requests */
    {100, 4194302, 0, 4194302, 99, 1, 0, {0, 0, 1000, 2, 2}},
    {100, 4194302, 0, 4194302, 99, 4194302, 0, {0, 0, 4194302000, 2, 101}},
    {100, 4194302, 4194302, 4152358, 99, 1, 0, {0, 0, 20, 1, 1}},
    /* room for one of many: only the end of their last window makes it */
    {100, 1, 0, 4000000, 0, 1, 0, {0, 0, 4000000000, 200, 200}},
    {100, 2, 0, 4000000, 0, 1, 0, {0, 0, 3999999000, 200, 200}},
    /* a look */
    {60000, 4, 4, 0, 0, 0, 1, {0, 0, 0, 15000, 0}},
    {60000, 4, 3, 2, 0, 0, 0, {0, 0, 1000, 40000, 20000}},
    {60000, 4, 0, 0, 0, 0, 1, {0, 4, 0, 0, 0}},
    /* more than is ever to be had */
    {60000, 4, 0, 0, 0, 5, 0, {0, 4, 1000, 0, NEVER}},
    {60000, 4, 0, 1, 0, UINT32_MAX, 0, {0, 3, 4294967292000, 120000, NEVER}},
    /* the limit was lowered, or raised, since */
    {60000, 4, 0, 10, 0, 1, 0, {0, 0, 7000, 102000, 102000}},
    {60000, 4, 10, 4, 6000, 1, 0, {0, 0, 10000, 69000, 69000}},
    {60000, 4, 10, 3, 6000, 1, 0, {0, 0, 9000, 54000, 54000}},
    {60000, 20, 0, 10, 0, 10, 1, {0, 10, 0, 66000, 0}},
};

static void check_example(size_t i) {
    const example_t *e = &examples[i];
    Policy policy = evicting(e->window_ms);
    State state = history(&policy, e->previous, e->current);
    State next = 42;
    uint64_t now_ms = PRESENT * e->window_ms + e->at_ms;
    Verdict v;
    int admitted = pure::admit(policy, state, now_ms, e->limit, e->cost, &next);

    v = pure::describe(policy, state, now_ms, e->limit, e->cost);

    if (admitted != e->admitted || v.limit != e->limit || v.remaining != e->verdict.remaining
        || v.excess != e->verdict.excess || v.reset_ms != e->verdict.reset_ms
        || v.retry_after_ms != e->verdict.retry_after_ms) {
        fail_msg("example %zu: admitted %d remaining %u excess %llu"
                 " reset %llu retry %llu",
                 i, admitted, v.remaining, (unsigned long long)v.excess,
                 (unsigned long long)v.reset_ms, (unsigned long long)v.retry_after_ms);
    }

    if (!admitted) { assert_int_equal(next, 42); }
}

static void test_examples(void **state) {
    (void)state;

    for (size_t i = 0; i < LENGTH(examples); i++) {
        check_example(i);
    }
}

static void test_cost_zero_changes_nothing(void **state) {
    Policy policy = evicting(MINUTE_MS);
    State before = history(&policy, 3, 1);
    uint64_t now_ms = PRESENT * MINUTE_MS;

    (void)state;

    for (unsigned windows = 0; windows < 4; windows++) {
        State after = 42;

        assert_true(pure::admit(policy, before, now_ms + windows * MINUTE_MS, 4, 0, &after));
        assert_int_equal(after, before);
    }
}

/* A state of no history is 0; one with a history must not be. */
static void test_no_state_is_zero_by_accident(void **state) {
    Policy policy = evicting(100);

    (void)state;

    for (uint64_t window = 0; window < 1 << 19; window += 1 << 16) {
        State next = 0;

        assert_true(pure::admit(policy, 0, window * 100, 1, 1, &next));
        assert_int_not_equal(next, 0);
        assert_int_equal(next >> 62, 0);
        assert_false(pure::admit(policy, next, window * 100, 1, 1, &next));
    }
}

/* Up to the age that a state may have. */
static void test_old_states_are_none(void **state) {
    Policy policy = evicting(MINUTE_MS);
    State full = history(&policy, LIMIT_MAX - 4, 3);
    State next = 0;

    (void)state;

    for (uint64_t age = 2; age <= 128; age++) {
        uint64_t now_ms = (PRESENT + age) * MINUTE_MS;

        assert_int_equal(expires_ms(&policy, full, now_ms), 0);
        assert_true(pure::admit(policy, full, now_ms, 4, 4, &next));
    }
}

static void test_expires(void **state) {
    Policy policy = evicting(MINUTE_MS);
    State previous = history(&policy, 3, 0);
    State both = history(&policy, 3, 1);
    uint64_t now_ms = PRESENT * MINUTE_MS;

    (void)state;

    assert_int_equal(expires_ms(&policy, 0, now_ms), 0);
    assert_int_equal(expires_ms(&policy, 0, 0), 0);

    assert_int_equal(expires_ms(&policy, previous, now_ms), 60000);
    assert_int_equal(expires_ms(&policy, previous, now_ms + 59999), 1);
    assert_int_equal(expires_ms(&policy, previous, now_ms + 60000), 0);

    assert_int_equal(expires_ms(&policy, both, now_ms), 120000);
    assert_int_equal(expires_ms(&policy, both, now_ms + 119999), 1);
    assert_int_equal(expires_ms(&policy, both, now_ms + 120000), 0);
}

/* Another worker's clock recorded the state 10 ms ahead of ours. */
static void test_clock_behind_the_state(void **state) {
    Policy policy = evicting(MINUTE_MS);
    uint64_t now_ms = PRESENT * MINUTE_MS - 10;
    State full = history(&policy, 0, 4);
    State room = history(&policy, 1, 2);
    State next = 0;
    Verdict verdict;

    (void)state;

    assert_false(pure::admit(policy, full, now_ms, 4, 1, &next));

    verdict = pure::describe(policy, full, now_ms, 4, 1);
    assert_int_equal(verdict.remaining, 0);
    assert_int_equal(verdict.excess, 1000);
    assert_int_equal(verdict.retry_after_ms, 10 + 60000 + 15000);
    assert_int_equal(expires_ms(&policy, full, now_ms), 10 + 60000 + 60000);

    /* two windows further: still as of its own time */

    verdict = pure::describe(policy, full, now_ms - 2 * MINUTE_MS, 4, 1);
    assert_int_equal(verdict.retry_after_ms, 10 + 3 * 60000 + 15000);

    /* recorded in its own window, which does not move back */

    assert_true(pure::admit(policy, room, now_ms, 4, 1, &room));
    assert_int_equal(unranked(room), history(&policy, 1, 3));
    assert_false(pure::admit(policy, room, now_ms, 4, 1, &room));
}

static void test_longest_window(void **state) {
    Policy policy = evicting(MONTH);
    State full = history(&policy, 0, LIMIT_MAX);

    (void)state;

    assert_int_equal(expires_ms(&policy, full, PRESENT * MONTH), 2 * MONTH);
}

/* What memory that was damaged holds is no string: a search in it ends. */
static void test_damaged_strings(void **state) {
    (void)state;

    for (unsigned kind = 0; kind < kCounterKindsLength; kind++) {
        const CounterFormat format(kCounterKinds[kind]);
        uint64_t counts = 0;

        if (!format.is_string()) { continue; }

        assert_false(format.take(1, &counts));
        assert_int_equal(format.age(0, 1), 1);

        /* a state has 44 bits for them */
        for (counts = 1; counts >> 44 == 0; counts <<= 1) {
            uint64_t count, newer;

            (void)format.find(counts, 0, &count, &newer);
        }
    }
}

/* ---- limits that change ---- */

#define LARGEST 1000000000u

static Policy parts_by_limit(uint64_t window_ms) { return parts_of(window_ms, 0); }

/* Returns what share of the higher limit a key is admitted at steady demand, which comes
 * under either in turn. */
static double share_in_turn(uint64_t low, uint64_t high) {
    constexpr uint64_t kWindowMs = 10000, kWindows = 40;
    Policy policy = parts_by_limit(kWindowMs);
    uint64_t admitted = 0;
    State state = 0;

    for (uint64_t ms = 0; ms < (kWindows + 1) * kWindowMs; ms++) {
        uint64_t limit = ms % 2 == 0 ? low : high;

        if (pure::admit(policy, state, PRESENT * kWindowMs + ms, (uint32_t)limit, 1, &state)) {
            admitted += ms >= kWindowMs;
        }
    }

    return (double)admitted / (double)(kWindows * high);
}

static void test_limits_in_turn_admit_the_higher(void **state) {
    static const uint64_t limits[][2]
        = {{20, 31}, {40, 127}, {100, 255}, {1, 20}, {5, 100}, {200, 300}, {1000, 2100}};

    (void)state;

    for (const auto &pair : limits) {
        double share = share_in_turn(pair[0], pair[1]);

        if (share < 0.93) { fail_msg("%d and %d: %.3f", (int)pair[0], (int)pair[1], share); }
    }
}

/* Fails if refunds of random histories leave less than remained without the fade of the oldest
 * part. */
static void check_refunds(const Policy &policy, uint32_t limit_most, uint32_t others) {
    uint64_t random = 29;
    Policy unfaded = policy;

    unfaded.strict = true;

    for (unsigned round = 0; round < draws(100000); round++) {
        uint32_t limit = 1 + (uint32_t)random_below(&random, limit_most);
        uint64_t now_ms = PRESENT * MINUTE_MS;
        State used = 0, recorded = 0;

        for (unsigned i = 0; i < 12; i++) {
            uint32_t other = random_below(&random, 2)
                                 ? limit
                                 : limit + (uint32_t)random_below(&random, others);
            uint32_t cost = 1 + (uint32_t)random_below(&random, other);

            now_ms += random_below(&random, MINUTE_MS / 4);
            if (pure::admit(policy, used, now_ms, other, cost, &used)) { recorded = used; }
        }

        now_ms += random_below(&random, MINUTE_MS);

        State left = pure::refund(policy, used, now_ms, limit, recorded, 1);
        uint64_t before = pure::describe(unfaded, used, now_ms, limit, 0).remaining;
        uint64_t after = pure::describe(policy, left, now_ms, limit, 0).remaining;

        if (after < before) {
            fail_msg("round %u: %d of %d remain, %d before", round, (int)after, (int)limit,
                     (int)before);
        }
    }
}

/* What is given back may leave room for parts that are shorter.  In these, nothing counts
 * again that was over. */
static void test_refunds_never_raise_what_is_used(void **state) {
    (void)state;

    check_refunds(parts_of(MINUTE_MS, 0, true), 21, 40);
    check_refunds(parts_of(MINUTE_MS, 0, true), 300, 30000);
}

/* Only the fade of a longer part is lost in shorter ones. */
static void test_refunds_cost_at_most_the_fade(void **state) {
    (void)state;

    check_refunds(parts_of(MINUTE_MS, 0), 21, 40);
    check_refunds(parts_of(MINUTE_MS, 0), 300, 30000);
}

/* As docs/algorithms.md says. */
static void test_share_at_steady_demand(void **state) {
    (void)state;

    /* a window's worth comes at once, and 40 windows begin or end with it */
    assert_float_equal(share_in_turn(10, 10), 0.965, 1 / 40.);
    assert_float_equal(share_in_turn(100, 100), 0.990, 0.002);
    assert_float_equal(share_in_turn(1000, 1000), 0.999, 0.001);
    assert_true(share_in_turn(22, 22) >= 21 / 22.);
}

/* What one request has used under a limit whose counts are rounded, also after a heavy window. */
static void test_a_request_under_a_large_limit_is_one(void **state) {
    static const uint32_t precisions[] = {0, 1};
    static const uint32_t heavy[] = {1, 4194304, 16777201, 67108609, 268431361, LARGEST};

    (void)state;

    for (uint32_t precision : precisions) {
        for (uint32_t before : heavy) {
            Policy policy = parts_of(MINUTE_MS, precision);
            uint64_t now_ms = PRESENT * MINUTE_MS + 1;
            State used = 0;

            assert_true(pure::admit(policy, used, now_ms, LARGEST, before, &used));
            now_ms += MINUTE_MS;
            assert_true(pure::admit(policy, used, now_ms, LARGEST, 1, &used));
            now_ms += MINUTE_MS;
            assert_int_equal(pure::describe(policy, used, now_ms, 100, 0).remaining, 99);

            /* and the heavy window does not make the next ones heavy */
            assert_true(pure::admit(policy, used, now_ms, 100, 1, &used));
            assert_int_equal(pure::describe(policy, used, now_ms, 100, 0).remaining, 98);
        }
    }
}

/* Fails if a request is not admitted at its told time, or is admitted a ms before. */
static void check_wait(const Policy &policy, State used, uint64_t now_ms, uint32_t limit,
                       uint32_t cost) {
    uint64_t wait_ms = pure::describe(policy, used, now_ms, limit, cost).retry_after_ms;
    State next;

    if (!pure::admit(policy, used, now_ms + wait_ms, limit, cost, &next)
        || (wait_ms > 0 && pure::admit(policy, used, now_ms + wait_ms - 1, limit, cost, &next))) {
        fail_msg("limit %u, cost %u: %llu ms", limit, cost, (unsigned long long)wait_ms);
    }
}

static const uint32_t large_limits[] = {4194304, 16777201, 100000007, 999999999, LARGEST};

/* A key that has used up such a limit is told a time when there is room, and not before. */
static void test_waits_under_large_limits_are_exact(void **state) {
    (void)state;

    for (uint32_t limit : large_limits) {
        Policy policy = parts_of(MONTH, 0);
        uint64_t now_ms = PRESENT * MONTH + 1000;
        State used = 0;

        assert_true(pure::admit(policy, used, now_ms, limit, limit - 5, &used));

        for (uint32_t cost = 6; cost <= limit / 7; cost *= 7) {
            check_wait(policy, used, now_ms, limit, cost);
        }

        uint64_t reset_ms = pure::describe(policy, used, now_ms, limit, 0).reset_ms;

        assert_int_equal(pure::describe(policy, used, now_ms + reset_ms - 1, limit, 0).remaining,
                         5);
        assert_true(pure::describe(policy, used, now_ms + reset_ms, limit, 0).remaining > 5);
    }
}

/* So it is if the window before has requests as well, which fade until those of the present
 * window are rounded up. */
static void test_waits_after_a_used_window_are_exact(void **state) {
    static const uint64_t windows[] = {100, MONTH};

    (void)state;

    for (uint32_t limit : large_limits) {
        for (uint32_t i = 0; i < 16; i++) {
            Policy policy = parts_of(windows[i & 1], 0, (i & 2) != 0);
            uint64_t now_ms = PRESENT * policy.window_ms + policy.window_ms / 2;
            uint32_t older = 1 + i / 4 * (limit / 7), newest = limit / 2 - i;
            State used = 0;

            assert_true(pure::admit(policy, used, now_ms - policy.window_ms, limit, older, &used));
            assert_true(pure::admit(policy, used, now_ms, limit, newest, &used));

            for (uint32_t over = 0; over < 70000; over += 1 + over / 3) {
                check_wait(policy, used, now_ms, limit, limit - newest + over);
                check_wait(policy, used, now_ms, limit, limit - newest - over);
            }

            check_wait(policy, used, now_ms, limit, 1);
            check_wait(policy, used, now_ms, limit, limit);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_cost_zero_changes_nothing),
        cmocka_unit_test(test_no_state_is_zero_by_accident),
        cmocka_unit_test(test_old_states_are_none),
        cmocka_unit_test(test_expires),
        cmocka_unit_test(test_clock_behind_the_state),
        cmocka_unit_test(test_longest_window),
        cmocka_unit_test(test_damaged_strings),
        cmocka_unit_test(test_limits_in_turn_admit_the_higher),
        cmocka_unit_test(test_share_at_steady_demand),
        cmocka_unit_test(test_refunds_never_raise_what_is_used),
        cmocka_unit_test(test_refunds_cost_at_most_the_fade),
        cmocka_unit_test(test_a_request_under_a_large_limit_is_one),
        cmocka_unit_test(test_waits_under_large_limits_are_exact),
        cmocka_unit_test(test_waits_after_a_used_window_are_exact),
    };

    return cmocka_run_group_tests_name("counter", tests, NULL, NULL);
}
