/* Copyright (C) the limit_sliding authors */

/* Windows and overrides, as text and as numbers. */

#include "core/policy/claim.hpp"
#include "core/policy/override.hpp"
#include "core/policy/terms.hpp"
#include "core/policy/window.hpp"
#include "support.hpp"

namespace {

void parses_windows(void **) {
    static const struct {
        const char *text;
        Window window;
    } cases[] = {
        {"100ms", {100, Calendar::kNone}},         {"10", {10000, Calendar::kNone}},
        {"10s", {10000, Calendar::kNone}},         {"1m", {60000, Calendar::kNone}},
        {"1h", {3600000, Calendar::kNone}},        {"1h30m", {5400000, Calendar::kNone}},
        {"1d", {86400000, Calendar::kNone}},       {"1w", {604800000, Calendar::kNone}},
        {"1M", {2592000000, Calendar::kNone}},     {"30d", {2592000000, Calendar::kNone}},
        {"720h", {2592000000, Calendar::kNone}},   {"1m30", {90000, Calendar::kNone}},
        {"day", {86400000, Calendar::kDay}},       {"week", {604800000, Calendar::kWeek}},
        {"month", {2592000000, Calendar::kMonth}}, {"year", {31536000000, Calendar::kYear}},
    };

    for (const auto &c : cases) {
        Window window = {};

        if (!window.parse(c.text)) { fail_msg("\"%s\" was refused", c.text); }

        assert_int_equal(window.ms, c.window.ms);
        assert_true(window == c.window);
        assert_true(Window::from_code(window.code()) == window);
    }
}

void refuses_what_is_no_window(void **) {
    static const char *const words[] = {
        "",         "0",      "0s",
        "99ms",     "30d1ms", "31d",
        "1y",       "s",      "ms",
        "-1s",      " 1s",    "1s ",
        "1s1m",     "1m1m",   "1x",
        "1S",       "1.5s",   "days",
        "Month",    "months", "1day",
        "1 ",       "1ms1",   "1ms5s",
        "month ",   "r/s",    "1/s",
        "1000000d", "1h30",   "1s 30",
        "1h 30m",   "1h 30m", "999999999999999999999999s",
    };

    for (const char *word : words) {
        Window window = {123, Calendar::kDay};

        /* NGINX takes a number at the end for seconds. */
        bool is_seconds = strcmp(word, "1h30") == 0;

        if (window.parse(word) != is_seconds) { fail_msg("\"%s\" was accepted", word); }
    }
}

void has_codes(void **) {
    assert_int_equal(Window{}.code(), 0);
    assert_false(Window::from_code(0).is_given());
    assert_false(Window::from_code(5).is_given());
    assert_false(Window::from_code(99).is_given());
    assert_false(Window::from_code(kWindowMaxMs + 1).is_given());
}

void parses_overrides(void **) {
    Policy fixed = {60000, Algorithm::kFixed};
    Override own = {};

    assert_true(own.parse("off", fixed, 1000));
    assert_true(own.is_set() && terms_of(own) == Terms::kUnlimited);
    assert_true(own.parse("0", fixed, 1000));
    assert_true(own.is_set() && terms_of(own) == Terms::kBlocked);

    static const struct {
        const char *text;
        uint64_t limit;
        uint32_t code;
    } cases[] = {
        {"10r/s", 600, 0},
        {"100", 100, 0},
        {"1000/1h", 1000, 3600000},
        {"100/10s", 100, 10000},
        {"7/1m", 7, 0},
        {"7/60s", 7, 0},
        {"50/month", 50, 3},
        {"50/day", 50, 1},
        {"50/1d", 50, 86400000},
        {"1/100ms", 1, 100},
        {"1000/30d", 1000, kWindowMaxMs},
    };

    for (const auto &c : cases) {
        if (!own.parse(c.text, fixed, 1000)) { fail_msg("\"%s\" was refused", c.text); }

        assert_true(has_number(own));
        assert_int_equal(own.limit, c.limit);
        assert_int_equal(own.window.code(), c.code);
    }
}

void refuses_what_is_no_override(void **) {
    static const char *const words[] = {
        "",       "OFF",   "default",  "00/1h",  "0/1h",   "1001",      "1001/1h",
        "17r/s",  "1/",    "/1h",      "1/99ms", "1/31d",  "10r/1h",    "10r/s/1h",
        "1/1h/1", "-1/1h", "1/1h ",    " 1/1h",  "1/ 1h",  "1 /1h",     "1/fortnight",
        "1r/",    "r/1h",  "1/month2", "1.5/1h", "10/r/s", "10r/month",
    };

    Policy fixed = {60000, Algorithm::kFixed};
    Policy counter = {60000, Algorithm::kCounter};
    Override own = {5, {}};

    for (const char *word : words) {
        if (own.parse(word, fixed, 1000)) { fail_msg("\"%s\" was accepted", word); }
    }

    assert_false(own.parse("5/month", counter, 1000));
    assert_int_equal(own.limit, 5);
}

void overrides_are_equal_as_a_whole(void **) {
    const Override ten = {10, Window::of(Calendar::kDay)};

    assert_true(ten == (Override{10, Window::of(Calendar::kDay)}));
    assert_true(ten != (Override{11, Window::of(Calendar::kDay)}));
    assert_true(ten != (Override{10, Window::of(Calendar::kWeek)}));
}

void has_a_policy_for_each_window(void **) {
    Policy zone = {60000, Algorithm::kFixed};
    Policy hour = with_window(zone, {3600000, Calendar::kNone});
    Policy month = with_window(zone, Window::of(Calendar::kMonth));

    assert_int_equal(zone.salt, 0);
    assert_int_equal(with_window(zone, {}).salt, 0);
    assert_int_equal(with_window(zone, {60000, Calendar::kNone}).salt, 0);
    assert_int_equal(hour.window_ms, 3600000);
    assert_true(hour.salt != 0 && month.salt != 0 && hour.salt != month.salt);
    assert_true(month.calendar == Calendar::kMonth);

    Claim claim = {};
    claim.policy = &zone;
    claim.hash = 42;
    claim.set_policy(hour);
    assert_true(claim.hash != 42);
    assert_int_equal(claim.key_hash(), 42);
    claim.set_policy(month);
    assert_int_equal(claim.key_hash(), 42);
    claim.set_policy(zone);
    assert_int_equal(claim.hash, 42);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(parses_windows),
        cmocka_unit_test(refuses_what_is_no_window),
        cmocka_unit_test(has_codes),
        cmocka_unit_test(parses_overrides),
        cmocka_unit_test(refuses_what_is_no_override),
        cmocka_unit_test(overrides_are_equal_as_a_whole),
        cmocka_unit_test(has_a_policy_for_each_window),
    };

    return cmocka_run_group_tests_name("window", tests, nullptr, nullptr);
}
