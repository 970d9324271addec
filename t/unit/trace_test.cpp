/* Copyright (C) the limit_sliding authors */

/*
 * A real trace against an exact log.  `make bench` prints the figures that
 * these bounds are rounded from.
 */

#include "support.hpp"
#include "trace.hpp"

#define CLIENT_LIMIT 10

static trace_t trace;

static int read_trace(void **state) {
    (void)state;

    return trace_read(&trace, TRACE_PATH) ? 0 : -1;
}

static int free_trace(void **state) {
    (void)state;

    trace_free(&trace);

    return 0;
}

static trace_errors_t replay(Algorithm algorithm, uint32_t precision, trace_judge_t judge) {
    Policy policy = {.window_ms = MINUTE_MS, .algorithm = algorithm, .precision = precision};
    trace_errors_t errors;

    trace_count_errors(&trace, &policy, CLIENT_LIMIT, 0, judge, &errors);
    assert_int_equal(errors.requests, 30969);

    return errors;
}

/* Bounds in 1/10000 of all requests. */
static void check(uint32_t precision, trace_judge_t judge, uint64_t over, uint64_t under) {
    trace_errors_t e = replay(Algorithm::kCounter, precision, judge);

    assert_in_range(10000 * e.over, 0, over * e.requests);
    assert_in_range(10000 * e.under, 0, under * e.requests);
}

static void test_log(void **state) {
    (void)state;

    for (trace_judge_t j : {TRACE_OWN_HISTORY, TRACE_SAME_HISTORY}) {
        trace_errors_t errors = replay(Algorithm::kLog, 0, j);

        assert_int_equal(errors.over, 0);
        assert_int_equal(errors.under, 0);
        assert_in_range(errors.rejected, 1000, 1100);
    }
}

static void test_counter(void **state) {
    (void)state;

    check(1, TRACE_OWN_HISTORY, 100, 60);
    check(1, TRACE_SAME_HISTORY, 100, 70);
}

static void test_counter_auto(void **state) {
    (void)state;

    check(0, TRACE_OWN_HISTORY, 11, 24);
    check(0, TRACE_SAME_HISTORY, 0, 35);
}

/* In no minute is more admitted to a client than the limit and an n-th of it. */
static void check_most(uint32_t limit, uint32_t parts, bool is_strict) {
    Policy policy = {.window_ms = MINUTE_MS, .strict = is_strict};
    trace_replay_t replay;

    trace_start(&replay, &trace, &policy, limit, 0, TRACE_SAME_HISTORY);

    while (trace_next(&replay)) {
        uint32_t before = replay.real;

        if (trace_decide(&replay)) {
            assert_in_range(before + 1, 1, is_strict ? limit : limit + limit / parts);
        }
    }

    trace_stop(&replay);
}

static void test_most_in_a_window(void **state) {
    (void)state;

    for (bool is_strict : {false, true}) {
        check_most(1, 40, is_strict);
        check_most(3, 40, is_strict);
        check_most(5, 36, is_strict);
        check_most(10, 28, is_strict);
        check_most(20, 22, is_strict);
        check_most(25, 7, is_strict);
        check_most(40, 6, is_strict);
        check_most(100, 5, is_strict);
    }
}

static void test_counter_precision(void **state) {
    (void)state;

    check(10, TRACE_OWN_HISTORY, 12, 24);
    check(10, TRACE_SAME_HISTORY, 5, 30);
    check(60, TRACE_SAME_HISTORY, 0, 20);
}

/*
 * In 1/10000 of the real rate.  One much below the least would be too good to
 * be true: then it is not the counter's estimate that is measured.
 */
static void check_rate(uint32_t precision, uint32_t limit, uint64_t least, uint64_t most) {
    Policy policy
        = {.window_ms = MINUTE_MS, .algorithm = Algorithm::kCounter, .precision = precision};
    trace_rate_errors_t errors[TRACE_RATES];
    const trace_rate_errors_t *others = &errors[TRACE_RATE_OTHERS];

    trace_sum_rate_errors(&trace, &policy, limit, 0, errors);

    assert_int_equal(errors[TRACE_RATE_ALL].n, 30969);
    assert_in_range(others->n, 24000, 24859);
    assert_in_range(10000 * others->sum / (double)others->n, least, most);
}

static void test_rate(void **state) {
    (void)state;

    check_rate(1, TRACE_NO_LIMIT, 1000, 1070);
    check_rate(10, TRACE_NO_LIMIT, 130, 150);
    check_rate(0, 16, 1, 200);
    check_rate(0, 21, 1, 200);
    check_rate(0, 22, 1, 200);
    check_rate(0, 30, 1, 200);
    check_rate(0, 255, 1, 400);
    check_rate(0, 1000, 1, 600);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_counter),
        cmocka_unit_test(test_counter_auto),
        cmocka_unit_test(test_most_in_a_window),
        cmocka_unit_test(test_counter_precision),
        cmocka_unit_test(test_rate),
    };

    return cmocka_run_group_tests_name("trace", tests, read_trace, free_trace);
}
