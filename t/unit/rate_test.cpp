/* Copyright (C) the limit_sliding authors */

#include "core/policy/rate.hpp"
#include "support.hpp"

static int parse(const char *text, Rate *rate) {
    return rate->parse({(const char *)text, strlen(text)});
}

static void test_parse_accepts_every_form(void **state) {
    static const struct {
        const char *text;
        uint64_t count;
        uint64_t per_ms;
    } forms[] = {
        {"1r/s", 1, 1000},
        {"10r/s", 10, 1000},
        {"60r/m", 60, 60000},
        {"5r/h", 5, 3600000},
        {"7r/d", 7, 86400000},
        {"1", 1, 0},
        {"4194302", 4194302, 0},
        {"007r/m", 7, 60000},
        {"999999999999999999", 999999999999999999, 0},
        {"999999999999999999r/d", 999999999999999999, 86400000},
    };

    (void)state;

    for (size_t i = 0; i < LENGTH(forms); i++) {
        Rate rate = {0, 1};

        assert_true(parse(forms[i].text, &rate));
        assert_int_equal(rate.count, forms[i].count);
        assert_int_equal(rate.per_ms, forms[i].per_ms);
    }
}

static void test_parse_rejects_all_else(void **state) {
    static const char *const words[] = {
        "",
        "0",
        "0r/s",
        "000",
        "r/s",
        "/s",
        "s",
        "off",
        "-1r/s",
        "+1r/s",
        " 1r/s",
        "1r/s ",
        "1 r/s",
        "1r/",
        "1r",
        "1/s",
        "1s",
        "1r/x",
        "1r/S",
        "1R/s",
        "1r/ms",
        "1r/ss",
        "1r/sec",
        "1.5r/s",
        "1e3r/s",
        "0x10",
        "1r/s1",
        "1rr/s",
        "1r//s",
        "1,000",
        "10r/s;",
        "1r/w",
        "1r/y",
        "1000000000000000000",
        "1000000000000000000r/s",
        "0000000000000000001r/s",
        "99999999999999999999999999999999999999999999r/s",
    };

    (void)state;

    for (size_t i = 0; i < LENGTH(words); i++) {
        Rate rate = {123, 456};

        if (parse(words[i], &rate)) { fail_msg("\"%s\" was accepted", words[i]); }

        assert_int_equal(rate.count, 123);
        assert_int_equal(rate.per_ms, 456);
    }
}

static void test_parse_sets_a_window(void **state) {
    static const struct {
        const char *text;
        Rate rate;
        Window window; /* 0: none is set */
    } forms[] = {
        {"5/15m", {5, 0}, {900000, Calendar::kNone}},
        {"100/10s", {100, 0}, {10000, Calendar::kNone}},
        {"6/90", {6, 0}, {90000, Calendar::kNone}},
        {"10000/month", {10000, 0}, Window::of(Calendar::kMonth)},
        {"10r/s", {10, 1000}, {}},
        {"10", {10, 0}, {}},
    };
    static const char *const words[]
        = {"", "5/", "/5m", "0/5m", "5r/5m", "5r/s/5m", "5/5m/5m", "5/99ms", "5/31d", "off/5m"};

    (void)state;

    for (size_t i = 0; i < LENGTH(forms); i++) {
        Rate rate = {};
        Window window = {};

        assert_true(rate.parse(forms[i].text, &window));
        assert_int_equal(rate.count, forms[i].rate.count);
        assert_int_equal(rate.per_ms, forms[i].rate.per_ms);
        assert_true(window == forms[i].window);
    }

    for (size_t i = 0; i < LENGTH(words); i++) {
        Rate rate = {123, 456};
        Window window = {789, Calendar::kNone};

        if (rate.parse(words[i], &window)) { fail_msg("\"%s\" was accepted", words[i]); }

        assert_int_equal(rate.count, 123);
        assert_int_equal(rate.per_ms, 456);
        assert_int_equal(window.ms, 789);
    }
}

/* NGINX's strings have a length and no end. */
static void test_parse_reads_no_further_than_told(void **state) {
    static const char *const text = "12r/m";
    Rate rate;
    char *copy;

    (void)state;

    assert_true(rate.parse({(const char *)text, 2}));
    assert_int_equal(rate.count, 12);
    assert_int_equal(rate.per_ms, 0);

    assert_false(rate.parse({(const char *)text, 3}));
    assert_false(rate.parse({(const char *)text, 4}));
    assert_false(rate.parse({(const char *)text, 6}));
    assert_false(rate.parse({(const char *)text, 0}));
    assert_false(rate.parse({(const char *)NULL, 0}));
    assert_false(rate.parse({(const char *)"1\0r/s", 5}));

    /* on the heap, where ASan sees a byte too many */

    for (size_t bytes = 1; bytes <= 5; bytes++) {
        copy = static_cast<char *>(malloc(bytes));
        memcpy(copy, text, bytes);
        rate.parse({(const char *)copy, bytes});
        free(copy);
    }
}

static void test_limit_is_floor_of_rate_times_window(void **state) {
    static const struct {
        const char *rate;
        uint64_t window_ms;
        uint64_t limit;
    } cases[] = {
        {"10r/s", 60000, 600},
        {"10r/s", 1000, 10},
        {"10r/s", 100, 1},
        {"10r/s", 199, 1},
        {"10r/s", 200, 2},
        {"9r/s", 100, 0},
        {"1r/d", 86399999, 0},
        {"1r/d", 86400000, 1},
        {"1r/d", kWindowMaxMs, 30},
        {"7r/m", 90000, 10},
        {"1999r/s", 1999, 3996},
        {"41943020r/s", 100, LIMIT_MAX},
        {"41943029r/s", 100, LIMIT_MAX},
        {"41943030r/s", 100, LIMIT_MAX + 1},
        {"5", 100, 5},
        {"5", kWindowMaxMs, 5},
        {"86399999r/d", kWindowMaxMs, 2591999970},
    };

    (void)state;

    for (size_t i = 0; i < LENGTH(cases); i++) {
        Rate rate;

        assert_true(parse(cases[i].rate, &rate));
        assert_int_equal(rate.limit(cases[i].window_ms), cases[i].limit);
    }
}

static void test_limit_saturates(void **state) {
    static const uint64_t windows_ms[] = {kWindowMinMs, 18446, 18447, DAY_MS, kWindowMaxMs};
    __extension__ typedef unsigned __int128 wide_t;

    Rate rate;

    (void)state;

    for (size_t i = 0; i < LENGTH(windows_ms); i++) {
        for (uint64_t count = 1; count <= 100000000000000000; count *= 10) {
            wide_t exact = (wide_t)count * 9 * windows_ms[i] / 1000;

            rate.count = count * 9;
            rate.per_ms = 1000;

            assert_int_equal(rate.limit(windows_ms[i]),
                             exact > UINT64_MAX ? UINT64_MAX : (uint64_t)exact);
        }
    }

    assert_true(parse("999999999999999999r/s", &rate));
    assert_int_equal(rate.limit(kWindowMaxMs), UINT64_MAX);
}

static void test_seconds_round_up(void **state) {
    (void)state;

    assert_int_equal(limit_sliding::seconds(0), 0);
    assert_int_equal(limit_sliding::seconds(1), 1);
    assert_int_equal(limit_sliding::seconds(999), 1);
    assert_int_equal(limit_sliding::seconds(1000), 1);
    assert_int_equal(limit_sliding::seconds(1001), 2);
    assert_int_equal(limit_sliding::seconds(UINT64_MAX), UINT64_MAX / 1000 + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_accepts_every_form),
        cmocka_unit_test(test_parse_rejects_all_else),
        cmocka_unit_test(test_parse_sets_a_window),
        cmocka_unit_test(test_parse_reads_no_further_than_told),
        cmocka_unit_test(test_limit_is_floor_of_rate_times_window),
        cmocka_unit_test(test_limit_saturates),
        cmocka_unit_test(test_seconds_round_up),
    };

    return cmocka_run_group_tests_name("rate", tests, NULL, NULL);
}
