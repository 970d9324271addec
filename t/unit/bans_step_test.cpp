/* Copyright (C) the limit_sliding authors */

/*
 * A process stops at each one of its accesses to bans, and dies, or goes on when
 * others have banned keys in the same places.
 */

#include "step.hpp"

#include "core/facts/bans.hpp"

#define NOW_MS (1000 * DAY_MS)
#define LINES 2
#define BYTES (64 + 64 * LINES)

static const PenaltyRule once = {DAY_MS, DAY_MS, MINUTE_MS, 1};
static const PenaltyRule often = {DAY_MS, DAY_MS, MINUTE_MS, 3};

static struct {
    Bans *bans;
    uint64_t key; /* of whom stops */
    uint64_t other;
} game;

static uint64_t left_ms(uint64_t key) { return game.bans->find(key << 40 | key, NOW_MS).left_ms; }

static Ban reject(uint64_t key, const PenaltyRule &rule) {
    return game.bans->reject(key << 40 | key, rule, NOW_MS);
}

/* Of the places, all but one have bans, or all have counts. */
static void prepare(bool is_full) {
    memset(step.memory, 0, BYTES);
    game.bans = Bans::init(step.memory, BYTES, test_secret);

    for (uint64_t key = 100; key < 120; key++) {
        reject(key, often);
    }

    for (uint64_t key = 200; is_full && game.bans->banned(NOW_MS, UINT64_MAX) < 7; key++) {
        reject(key, once);
    }
}

static void ban_other(void) { reject(game.other, once); }

/* Whoever stops: the ban of another is kept, and its own one begins. */
static void test_stall(void **state) {
    (void)state;

    for (uint64_t other : {1, 2}) {
        step_begin(4096);
        game.key = 1;
        game.other = other;
        step.stopped = ban_other;

        for (;;) {
            prepare(false);
            step.stop_at++;
            STEP_THROUGH(reject(game.key, once));

            if (step.accesses < step.stop_at) { break; }

            assert_int_equal(left_ms(1), DAY_MS);
            assert_int_equal(left_ms(other), DAY_MS);
            assert_int_equal(game.bans->banned(NOW_MS, UINT64_MAX), other);
        }

        assert_in_range(step.stop_at, 10, 1000);
        step_end();
    }
}

/* In the last place: one of the bans is kept, and no other key is banned. */
static void test_stall_at_the_last_place(void **state) {
    (void)state;

    step_begin(4096);
    game.key = 1;
    game.other = 2;
    step.stopped = ban_other;

    do {
        prepare(true);
        step.stop_at++;
        STEP_THROUGH(reject(game.key, once));
        assert_true(left_ms(1) != 0 || left_ms(2) != 0);
        assert_in_range(game.bans->banned(NOW_MS, UINT64_MAX), 7, 8);

        for (uint64_t key = 3; key < 120; key++) {
            assert_int_equal(left_ms(key), 0);
        }
    } while (step.accesses >= step.stop_at);

    step_end();
}

/* Whoever dies, after any number of changes: all goes on, for its key as well. */
static void test_death(void **state) {
    unsigned changes = 1;
    int is_dead;

    (void)state;
    step_begin(4096);

    do {
        prepare(false);
        game.other = 1;
        is_dead = step_other_dies(ban_other, changes++);

        for (uint64_t key = 1; key <= 6; key++) {
            reject(key, once);
            assert_int_equal(left_ms(key), DAY_MS);
        }

        assert_int_equal(game.bans->banned(NOW_MS, UINT64_MAX), 6);
    } while (is_dead);

    assert_in_range(changes, 5, 100);
    step_end();
}

/* All places are of keys that count. */
static void prepare_counts(void) {
    memset(step.memory, 0, BYTES);
    game.bans = Bans::init(step.memory, BYTES, test_secret);

    for (uint64_t key = 100; key < 100 + 4 * LINES; key++) {
        reject(key, often);
    }
}

/* Frees the place of a key, and bans ours. */
static void lift_and_ban(void) {
    game.bans->lift(game.other << 40 | game.other, NOW_MS);
    reject(game.key, once);
}

static unsigned changes;

static void lift_and_die(void) { step_other_dies(lift_and_ban, changes); }

/*
 * Another process frees a place, and takes it for the same key while ours has chosen
 * another one; and dies, or not, after each of its changes.  The key has one ban then.
 */
static void test_two_claims(void **state) {
    (void)state;

    step_begin(4096);
    game.key = 1;

    for (game.other = 100; game.other < 100 + 4 * LINES; game.other++) {
        for (changes = 2; changes <= 5; changes++) {
            step.stopped = lift_and_die;
            step.stop_at = 0;

            do {
                prepare_counts();
                step.stop_at++;
                STEP_THROUGH(reject(game.key, once));

                if (left_ms(1) == 0) { reject(game.key, once); }

                assert_int_equal(left_ms(1), DAY_MS);
                assert_int_equal(game.bans->banned(NOW_MS, UINT64_MAX), 1);
                assert_true(game.bans->lift(1ull << 40 | 1, NOW_MS));
                assert_int_equal(left_ms(1), 0);
            } while (step.accesses >= step.stop_at);
        }
    }

    step_end();
}

/* A key that has to give its place to another one is not seen with the other's ban. */
static uint64_t found_ms;

static void ban_longer(void) {
    for (uint64_t key = 300; key < 340; key++) {
        game.bans->set(key << 40 | key, {2 * DAY_MS, 0}, once, NOW_MS);
    }
}

static void test_find_while_others_come(void **state) {
    (void)state;

    step_begin(4096);
    step.stopped = ban_longer;

    do {
        prepare_counts();
        reject(1, once);
        step.stop_at++;
        STEP_THROUGH(found_ms = left_ms(1));
        assert_true(found_ms == 0 || found_ms == DAY_MS);
        assert_true(step.accesses < step.stop_at || left_ms(1) == 0);
    } while (step.accesses >= step.stop_at);

    assert_in_range(step.stop_at, 4, 100);
    step_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stall),
        cmocka_unit_test(test_stall_at_the_last_place),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_two_claims),
        cmocka_unit_test(test_find_while_others_come),
    };

    return cmocka_run_group_tests_name("bans step", tests, NULL, NULL);
}
