/* Copyright (C) the limit_sliding authors */

/* Walks by SCAN: places as texts, patterns, and how much at a time. */

#include "redis/protocol/scan_position.hpp"
#include "support.hpp"

using namespace limit_sliding;

static std::string_view text_of(uint64_t node, uint64_t cursor) {
    static char text[kScanPositionBytes];
    return {text, write_scan_position({node, cursor}, text)};
}

static std::string_view pattern_of(std::string_view text) {
    static char pattern[64];
    return {pattern, static_cast<size_t>(escape_glob(text, pattern) - pattern)};
}

static void places_are_read_as_written(void **state) {
    (void)state;

    assert_true(text_of(1, 0) == "1-0");
    assert_true(text_of(0xa0, 0x10) == "a0-10");
    assert_true(text_of(UINT64_MAX, UINT64_MAX) == "ffffffffffffffff-ffffffffffffffff");

    const uint64_t numbers[] = {0, 1, 15, 16, 0x123456789abcdef0, uint64_t{1} << 63, UINT64_MAX};
    for (uint64_t node : numbers) {
        for (uint64_t cursor : numbers) {
            ScanPosition place;
            bool is_read = read_scan_position(text_of(node, cursor), &place);

            assert_int_equal(is_read, node != 0);
            if (is_read) {
                assert_true(place.node == node);
                assert_true(place.cursor == cursor);
            }
        }
    }
}

static void other_texts_are_no_places(void **state) {
    (void)state;

    for (const char *text : {"",
                             "-",
                             "1",
                             "1-",
                             "-1",
                             "1-0-",
                             "1-0 ",
                             " 1-0",
                             "01-0",
                             "1-00",
                             "1-01",
                             "A-0",
                             "1-A",
                             "g-0",
                             "1-g",
                             "+1-0",
                             "1--1",
                             "0x1-0",
                             "10000000000000000-0",
                             "1-10000000000000000"}) {
        ScanPosition place;
        assert_false(read_scan_position(text, &place));
    }

    ScanPosition place;
    assert_false(read_scan_position({"1-0\0", 4}, &place));
}

static void patterns_match_one_text(void **state) {
    (void)state;

    assert_true(pattern_of("limit_sliding:api:{") == "limit_sliding:api:{");
    assert_true(pattern_of("*?[a-z]\\^!") == "\\*\\?\\[a-z\\]\\\\^!");
    assert_true(pattern_of({"\0\xff", 2}) == std::string_view("\0\xff", 2));
    assert_true(pattern_of("") == "");
}

static void counts_follow_what_was_found(void **state) {
    (void)state;

    /* nothing is known yet, or all keys are of those that are looked for */
    assert_int_equal(scan_count(100, 0, 0), 100);
    assert_int_equal(scan_count(3, 100, 97), 10);

    /* one of four */
    assert_int_equal(scan_count(75, 100, 25), 300);

    /* none, and bounds */
    assert_int_equal(scan_count(1, 0, 0), kScanMin);
    assert_int_equal(scan_count(10, 10, 0), 100);
    assert_int_equal(scan_count(1000, 50000, 0), kScanMax);
    assert_int_equal(scan_count(1000, 0, 0), kScanMax);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_read_as_written),
        cmocka_unit_test(other_texts_are_no_places),
        cmocka_unit_test(patterns_match_one_text),
        cmocka_unit_test(counts_follow_what_was_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
