/* Copyright (C) the limit_sliding authors */

/* Limits of single keys. */

#include "zone_memory.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void keeps_limits(void **state) {
    ZoneMemory memory = make_memory(ZONE_BYTES);
    Overrides *own = memory.overrides;

    (void)state;

    assert_int_equal(own->count(), 0);
    assert_int_equal(own->find(1), kLimitUnset);

    /* a hash of zeroes, and neighbours */
    for (uint64_t hash = 0; hash < 20; hash++) {
        assert_true(own->set(hash, (uint32_t)hash + 1));
    }

    assert_true(own->set(UINT64_MAX, LIMIT_MAX));
    assert_true(own->set(3, kUnlimited));
    assert_true(own->set(4, kLimitMax));
    assert_int_equal(own->count(), 21);

    assert_int_equal(own->find(0), 1);
    assert_int_equal(own->find(3), kUnlimited);
    assert_int_equal(own->find(4), kLimitMax);
    assert_int_equal(own->find(19), 20);
    assert_int_equal(own->find(20), kLimitUnset);
    assert_int_equal(own->find(UINT64_MAX), LIMIT_MAX);

    for (uint64_t hash = 0; hash < 20; hash++) {
        assert_true(own->set(hash, kLimitUnset));
        assert_true(own->set(hash, kLimitUnset));
        assert_int_equal(own->find(hash), kLimitUnset);
    }

    assert_int_equal(own->count(), 1);
    free_memory(&memory, ZONE_BYTES);
}

/* Places are used again, so nothing leaks however long it goes on. */
static void has_room_for_what_it_holds(void **state) {
    ZoneMemory memory = make_memory(ZONE_BYTES);
    Overrides *own = memory.overrides;
    uint64_t held = 0;

    (void)state;

    for (uint64_t key = 0; key < 100000; key++) {
        assert_true(own->set(key * SPREAD, 7));
        if (key >= 100) { own->set((key - 100) * SPREAD, kLimitUnset); }
    }

    assert_int_equal(own->count(), 100);

    for (uint64_t key = 100000; key < 101000; key++) {
        held += (uint64_t)own->set(key * SPREAD, 8);
    }

    assert_in_range(held, 100, 154);
    assert_int_equal(own->count(), 100 + held);
    assert_int_equal(own->find(99999 * SPREAD), 7);
    assert_true(own->set(99999 * SPREAD, 9));
    assert_int_equal(own->find(99999 * SPREAD), 9);
    free_memory(&memory, ZONE_BYTES);
}

/* Threads, each with limits of its own and one in common. */
static void *set_limits(void *data) {
    Overrides *own = static_cast<Overrides *>(data);
    uint64_t first = (uint64_t)(uintptr_t)&first;

    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t key = (first + i % 30) * SPREAD;
        uint32_t found;

        assert_true(own->set(key, 5));
        assert_int_equal(own->find(key), 5);
        own->set(key, kLimitUnset);
        assert_int_equal(own->find(key), kLimitUnset);

        assert_true(own->set(42, 1 + i % 2));
        found = own->find(42);
        assert_in_range(found, 1, 2);
    }

    return NULL;
}

static void keeps_limits_of_many(void **state) {
    ZoneMemory memory = make_memory(ZONE_BYTES);

    (void)state;
    in_threads(set_limits, memory.overrides);
    assert_int_equal(memory.overrides->count(), 1);
    free_memory(&memory, ZONE_BYTES);
}

/* Who dies leaves `held` no less than there are. */
static void survives_the_dead(void **state) {
    ZoneMemory memory = make_memory(ZONE_BYTES);

    (void)state;

    for (int round = 0; round < 50; round++) {
        pid_t pid = fork();
        uint64_t held = 0;

        if (pid == 0) {
            for (uint64_t i = 0;; i++) {
                uint64_t hash = i % 60 * SPREAD;

                memory.overrides->set(hash, 1 + i % 3);
                add_offender(memory, hash, {(const char *)&hash, 8}, 1, NOW_MS);
                if (i % 3) { memory.overrides->set(hash, kLimitUnset); }
            }
        }

        usleep(500);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);

        for (uint64_t key = 0; key < 60; key++) {
            held += memory.overrides->find(key * SPREAD) != kLimitUnset;
        }

        assert_true(memory.overrides->count() >= held);
        assert_true(memory.overrides->set(12345, 6));
        assert_int_equal(memory.overrides->find(12345), 6);
    }

    free_memory(&memory, ZONE_BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_limits),
        cmocka_unit_test(has_room_for_what_it_holds),
        cmocka_unit_test(keeps_limits_of_many),
        cmocka_unit_test(survives_the_dead),
    };

    return cmocka_run_group_tests_name("overrides", tests, NULL, NULL);
}
