/* Copyright (C) the limit_sliding authors */

/* Lines of a file of overrides. */

#include "support.hpp"

#include "core/policy/override_line.hpp"

static const Policy kFixedMinutes = {.window_ms = MINUTE_MS, .algorithm = Algorithm::kFixed};

/* Parses a copy of the text, which stays until the next one. */
static OverrideLine::Kind parse(OverrideLine *line, std::string_view text) {
    static char copy[4 * OverrideLine::kKeyMax];

    memcpy(copy, text.data(), text.size());
    return line->parse(copy, text.size(), kFixedMinutes, kLimitMax);
}

typedef struct {
    const char *text;
    const char *key;
    const char *limit;
    Override own;
    uint64_t until_s;
} right_t;

static void reads_what_is_right(void **state) {
    static const right_t lines[] = {
        {"a 10r/m", "a", "10r/m", {10, {}}, kNoEnd},
        {" \ta\t 10r/m \t", "a", "10r/m", {10, {}}, kNoEnd},
        {"a off\r", "a", "off", {kLimitOff, {}}, kNoEnd},
        {"a 0", "a", "0", {kLimitBlocked, {}}, kNoEnd},
        {"a default", "a", "default", {kLimitUnset, {}}, kNoEnd},
        {"a 1000/1h", "a", "1000/1h", {1000, {3600000, Calendar::kNone}}, kNoEnd},
        {"a 5000/month", "a", "5000/month", {5000, Window::of(Calendar::kMonth)}, kNoEnd},
        {"a 10 # b", "a", "10", {10, {}}, kNoEnd},
        {"a 10 until=5 # b", "a", "10", {10, {}}, 5},
        {"a 10 until=1970-01-01T00:00:00Z", "a", "10", {10, {}}, 0},
        {"a 10 until=2000-02-29T23:59:59Z", "a", "10", {10, {}}, 951868799},
        {"a 10 until=2028-02-29T23:59:60Z", "a", "10", {10, {}}, 1835481600},
        {"a 10 until=2000-03-01T00:00:00Z", "a", "10", {10, {}}, 951868800},
        {"a 10 until=2026-11-22T21:00:00Z", "a", "10", {10, {}}, 1795381200},
        {"a 10 until=2100-03-01T00:00:00Z", "a", "10", {10, {}}, 4107542400},
        {"a 10 until=2106-02-07T06:28:14Z", "a", "10", {10, {}}, 4294967294},
        {"a 10 until=4294967294", "a", "10", {10, {}}, 4294967294},
        {"a%20b%23%25%c3%A4%0a 10", "a b#%\xc3\xa4\n", "10", {10, {}}, kNoEnd},
        {"%61%62 10", "ab", "10", {10, {}}, kNoEnd},
        {"\"a\"=/~! 10", "\"a\"=/~!", "10", {10, {}}, kNoEnd},
        {"off off", "off", "off", {kLimitOff, {}}, kNoEnd},
    };

    (void)state;

    for (const right_t &right : lines) {
        OverrideLine line;

        if (parse(&line, right.text) != OverrideLine::Kind::kOverride) {
            fail_msg("\"%s\": %s", right.text, line.error);
        }

        assert_true(line.key == right.key);
        assert_true(line.text == right.limit);
        assert_true(line.own == right.own);
        assert_int_equal(line.until_s, right.until_s);
    }
}

static void skips_comments(void **state) {
    (void)state;

    for (const char *text : {"", " ", "\r", "#", "# a 10", "  # a 10", "\t#a 10"}) {
        OverrideLine line;

        assert_true(parse(&line, text) == OverrideLine::Kind::kNone);
    }
}

static void tells_what_is_wrong(void **state) {
    static const struct {
        const char *text;
        const char *error;
    } lines[] = {
        {"a", "the key has no limit"},
        {"a ", "the key has no limit"},
        {"a # 10", "the key has no limit"},
        {"a% 10", "a byte"},
        {"a%2 10", "a byte"},
        {"a%2g 10", "a byte"},
        {"a%g2 10", "a byte"},
        {"a%2! 10", "a byte"},
        {"a#b 10", "a byte"},
        {"\xc3\xa4 10", "a byte"},
        {"a\001 10", "a byte"},
        {"a\177 10", "a byte"},
        {"a 10r", "the limit is invalid"},
        {"a -1", "the limit is invalid"},
        {"a 00", "the limit is invalid"},
        {"a OFF", "the limit is invalid"},
        {"a 1000000001", "the limit is invalid"},
        {"a 10/5x", "the limit is invalid"},
        {"a 10/50ms", "the limit is invalid"},
        {"a 10/31d", "the limit is invalid"},
        {"a 10#b", "the limit is invalid"},
        {"a 10 20", "is not \"until=\""},
        {"a 10 until", "is not \"until=\""},
        {"a 10 until=", "is not \"until=\""},
        {"a 10 unless=5", "is not \"until=\""},
        {"a 10 until=x", "the time"},
        {"a 10 until=-1", "the time"},
        {"a 10 until=1d", "the time"},
        {"a 10 until=1234567890123456789", "the time"},
        {"a 10 until=4294967295", "the time is after"},
        {"a 10 until=2106-02-07T06:28:15Z", "the time is after"},
        {"a 10 until=9999-12-31T23:59:60Z", "the time is after"},
        {"a 10 until=2026-11-22", "the time"},
        {"a 10 until=2026-11-22T21:00:00", "the time"},
        {"a 10 until=2026-11-22 21:00:00Z", "the time"},
        {"a 10 until=2026-13-22T21:00:00Z", "the time"},
        {"a 10 until=2026-11-31T21:00:00Z", "the time"},
        {"a 10 until=2026-02-29T21:00:00Z", "the time"},
        {"a 10 until=2100-02-29T21:00:00Z", "the time"},
        {"a 10 until=2026-11-22T24:00:00Z", "the time"},
        {"a 10 until=2026-11-22T21:60:00Z", "the time"},
        {"a 10 until=1969-12-31T23:59:59Z", "the time"},
        {"a 10 until=2026-00-22T21:00:00Z", "the time"},
        {"a 10 until=2026-11-00T21:00:00Z", "the time"},
        {"a 10 until=2026-11-22T21:00:61Z", "the time"},
        {"a 10 until=2026-11-2_T21:00:00Z", "the time"},
        {"a 10 until=2026/11/22T21:00:00Z", "the time"},
        {"a 10 until=5 until=6", "more follows"},
    };

    (void)state;

    for (const auto &wrong : lines) {
        OverrideLine line;

        if (parse(&line, wrong.text) != OverrideLine::Kind::kWrong) {
            fail_msg("\"%s\"", wrong.text);
        }

        if (strstr(line.error, wrong.error) == nullptr) {
            fail_msg("\"%s\": %s", wrong.text, line.error);
        }
    }
}

static void bounds_keys(void **state) {
    (void)state;

    for (size_t size : {OverrideLine::kKeyMax, OverrideLine::kKeyMax + 1}) {
        static char text[3 * OverrideLine::kKeyMax + 10];
        for (size_t i = 0; i < size; i++) {
            memcpy(text + 3 * i, "%00", 3);
        }
        memcpy(text + 3 * size, " 10", 3);

        OverrideLine line;
        assert_true((parse(&line, {text, 3 * size + 3}) == OverrideLine::Kind::kOverride)
                    == (size == OverrideLine::kKeyMax));
    }
}

/* Windows of the calendar are for fixed windows alone, and units in flight have no window. */
static void knows_the_policy(void **state) {
    static const Policy counter = {.window_ms = MINUTE_MS};
    static const Policy in_flight = {.algorithm = Algorithm::kInFlight};
    static const struct {
        const char *text;
        const Policy *policy;
        uint64_t limit; /* 0: wrong */
    } rows[] = {
        {"a 5000/month", &counter, 0}, {"a 100/1h", &counter, 100}, {"a 10r/s", &counter, 600},
        {"a 100/1h", &in_flight, 0},   {"a 10r/s", &in_flight, 0},  {"a 100", &in_flight, 100},
    };

    (void)state;

    for (const auto &row : rows) {
        char text[20];
        strcpy(text, row.text);

        OverrideLine line;
        const auto kind = line.parse(text, strlen(text), *row.policy, kLimitMax);
        assert_true(
            kind == (row.limit == 0 ? OverrideLine::Kind::kWrong : OverrideLine::Kind::kOverride));
        if (row.limit != 0) { assert_int_equal(line.own.limit, row.limit); }
    }
}

static void writes_what_it_reads(void **state) {
    uint64_t random = 5;

    (void)state;

    for (int round = 0; round < 10000; round++) {
        char bytes[40];
        const std::string_view key(bytes, 1 + random_below(&random, sizeof(bytes)));
        for (char &byte : bytes) {
            byte = (char)random_below(&random, 256);
        }

        const bool is_default = round % 7 == 0;
        const uint64_t until_s = round % 2 == 0 ? kNoEnd : random_below(&random, 1u << 31);
        OverrideLine line = {key, "7/1h", {is_default ? 0u : 7u, {}}, until_s, nullptr};
        char written[200];
        assert_true(line.size_max() <= sizeof(written));
        const size_t size = line.write(written);

        assert_true(size <= line.size_max());
        assert_int_equal(written[0], ' ');
        assert_ptr_equal(memchr(written, '\n', size), written + size - 1);

        OverrideLine read;
        assert_true(parse(&read, {written, size - 1}) == OverrideLine::Kind::kOverride);
        assert_true(read.key == key);
        assert_true(read.own.is_set() == !is_default);
        assert_int_equal(read.until_s, is_default ? kNoEnd : until_s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_is_right), cmocka_unit_test(skips_comments),
        cmocka_unit_test(tells_what_is_wrong), cmocka_unit_test(bounds_keys),
        cmocka_unit_test(knows_the_policy),    cmocka_unit_test(writes_what_it_reads),
    };

    return cmocka_run_group_tests_name("limit line", tests, NULL, NULL);
}
