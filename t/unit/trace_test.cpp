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
static void check_rate(uint32_t precision, uint64_t least, uint64_t most) {
    Policy policy
        = {.window_ms = MINUTE_MS, .algorithm = Algorithm::kCounter, .precision = precision};
    trace_rate_errors_t errors[TRACE_RATES];
    const trace_rate_errors_t *others = &errors[TRACE_RATE_OTHERS];

    trace_sum_rate_errors(&trace, &policy, TRACE_NO_LIMIT, 0, errors);

    assert_int_equal(errors[TRACE_RATE_ALL].n, 30969);
    assert_int_equal(others->n, 24859);
    assert_in_range(10000 * others->sum / (double)others->n, least, most);
}

static void test_rate(void **state) {
    (void)state;

    check_rate(1, 1000, 1070);
    check_rate(10, 130, 150);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_counter),
        cmocka_unit_test(test_counter_precision),
        cmocka_unit_test(test_rate),
    };

    return cmocka_run_group_tests_name("trace", tests, read_trace, free_trace);
}
