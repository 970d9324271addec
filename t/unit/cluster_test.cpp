/* Copyright (C) the limit_sliding authors */

/* Slots of keys, as CLUSTER KEYSLOT of a Redis says them. */

#include <string.h>

#include "redis/protocol/key_slot.hpp"
#include "support.hpp"

using namespace limit_sliding;

static unsigned slot(const char *name) { return key_slot({(const char *)name, strlen(name)}); }

static void slots_are_redis_own(void **state) {
    (void)state;

    assert_int_equal(slot("123456789"), 0x31c3);
    assert_int_equal(slot(""), 0);
    assert_int_equal(slot("foo"), 12182);
    assert_int_equal(slot("limit_sliding:api:{aaf4c61ddcc5e8a2dabede0f3b482cd9"
                          "aea9434d}:limit"),
                     slot("aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"));
    assert_int_equal(key_slot({(const char *)"\xff\x00\x80", 3}),
                     key_slot({(const char *)"a{\xff\x00\x80}", 6}));
}

static void first_braces_count(void **state) {
    (void)state;

    assert_int_equal(slot("{user1000}.following"), slot("user1000"));
    assert_int_equal(slot("foo{bar}{zap}"), slot("bar"));
    assert_int_equal(slot("foo{{bar}}zap"), slot("{bar"));
    assert_int_equal(slot("foo}{bar}"), slot("bar"));

    /* nothing between them, or no pair: the whole name */
    assert_int_equal(slot("foo{}{bar}"), 8363);
    assert_int_not_equal(slot("foo{}{bar}"), slot("bar"));
    assert_int_not_equal(slot("foo{bar"), slot("bar"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_redis_own),
        cmocka_unit_test(first_braces_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
