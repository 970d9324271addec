/* Copyright (C) the limit_sliding authors */

/* Keys that are banned after rejections. */

#include "support.hpp"

#include "core/facts/bans.hpp"

#include <pthread.h>
#include <sys/mman.h>

#define THREADS 4
#define NOW_MS (1000 * DAY_MS)
#define LINE_PLACES 4

/* Of so many lines. */
static Bans *make_bans(size_t lines) {
    size_t bytes = 64 + 64 * lines;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);

    return Bans::init(memory, bytes, test_secret);
}

static void free_bans(Bans *bans) { munmap(bans, 64 + 64 * (bans->places() / LINE_PLACES)); }

/* Of 10 minutes, twice as long each time up to 2 hours, after 20 rejections a minute. */
static const PenaltyRule rule = {10 * MINUTE_MS, 120 * MINUTE_MS, MINUTE_MS, 20};
static const PenaltyRule once = {10 * MINUTE_MS, 10 * MINUTE_MS, MINUTE_MS, 1};

/* Rejects a key n times, and returns what came of the last time; no ban begins before. */
static Ban reject(Bans *bans, uint64_t key, const PenaltyRule &by, unsigned n, uint64_t now_ms) {
    Ban ban = {};

    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(ban.left_ms, 0);
        ban = bans->reject(key, by, now_ms);
    }

    return ban;
}

static uint64_t left_ms(const Bans *bans, uint64_t key, uint64_t now_ms) {
    return bans->find(key, now_ms).left_ms;
}

static void begins_with_the_last_rejection(void **state) {
    Bans *bans = make_bans(64);

    (void)state;

    assert_int_equal(reject(bans, 1, rule, 19, NOW_MS).left_ms, 0);
    assert_int_equal(left_ms(bans, 1, NOW_MS), 0);
    assert_int_equal(bans->banned(NOW_MS, UINT64_MAX), 0);

    Ban ban = bans->reject(1, rule, NOW_MS + 5);
    assert_int_equal(ban.left_ms, 10 * MINUTE_MS);
    assert_int_equal(ban.doublings, 0);

    /* a second one does not begin */
    assert_int_equal(reject(bans, 1, rule, 100, NOW_MS + 6).left_ms, 0);
    assert_int_equal(left_ms(bans, 1, NOW_MS + 6), 10 * MINUTE_MS - 1);
    assert_int_equal(bans->banned(NOW_MS + 6, UINT64_MAX), 1);

    /* to the millisecond, and of no other key */
    assert_int_equal(left_ms(bans, 1, NOW_MS + 4 + 10 * MINUTE_MS), 1);
    assert_int_equal(left_ms(bans, 1, NOW_MS + 5 + 10 * MINUTE_MS), 0);
    assert_int_equal(left_ms(bans, 2, NOW_MS + 6), 0);
    assert_int_equal(bans->banned(NOW_MS + 5 + 10 * MINUTE_MS, UINT64_MAX), 0);

    free_bans(bans);
}

/* A window begins with the first rejection of it. */
static void counts_within_a_window(void **state) {
    Bans *bans = make_bans(64);

    (void)state;

    reject(bans, 1, rule, 1, NOW_MS);
    reject(bans, 1, rule, 18, NOW_MS + MINUTE_MS - 1);
    assert_int_equal(reject(bans, 1, rule, 19, NOW_MS + MINUTE_MS).left_ms, 0);
    assert_int_equal(reject(bans, 1, rule, 1, NOW_MS + 2 * MINUTE_MS - 1).left_ms, 10 * MINUTE_MS);

    /* the clock of another process may be behind */
    reject(bans, 2, rule, 19, NOW_MS);
    assert_int_equal(reject(bans, 2, rule, 1, NOW_MS - 5).left_ms, 10 * MINUTE_MS);

    free_bans(bans);
}

static void doubles_and_forgets(void **state) {
    static const unsigned minutes[] = {10, 20, 40, 80, 120, 120, 120};
    static const unsigned doublings[] = {0, 1, 2, 3, 4, 4, 4};
    Bans *bans = make_bans(64);
    uint64_t now_ms = NOW_MS;

    (void)state;

    for (size_t i = 0; i < LENGTH(minutes); i++) {
        Ban ban = reject(bans, 1, rule, 20, now_ms);

        assert_int_equal(ban.left_ms, minutes[i] * MINUTE_MS);
        assert_int_equal(ban.doublings, doublings[i]);
        assert_int_equal(bans->find(1, now_ms).doublings, doublings[i]);

        /* just not forgotten yet: all rejections come in the last millisecond */
        now_ms += ban.left_ms + rule.max_ms - 1;
    }

    /* forgotten, to the millisecond */
    assert_int_equal(reject(bans, 1, rule, 20, now_ms + 1).left_ms, 10 * MINUTE_MS);
    free_bans(bans);
}

/* What is counted since the last ban does not make its doublings last longer than by a
 * sixteenth. */
static void forgets_while_it_counts(void **state) {
    Bans *bans = make_bans(64);
    uint64_t end_ms = NOW_MS + 10 * MINUTE_MS;

    (void)state;

    reject(bans, 1, rule, 20, NOW_MS);
    reject(bans, 2, rule, 20, NOW_MS);

    for (uint64_t now_ms = end_ms; now_ms < end_ms + rule.max_ms; now_ms += MINUTE_MS) {
        reject(bans, 1, rule, 10, now_ms);
        reject(bans, 2, rule, 10, now_ms);
    }

    uint64_t last_ms = end_ms + rule.max_ms - 1;
    assert_int_equal(reject(bans, 1, rule, 10, last_ms).left_ms, 20 * MINUTE_MS);

    uint64_t later_ms = end_ms + rule.max_ms + rule.max_ms / 16 + 1;
    assert_int_equal(reject(bans, 2, rule, 20, later_ms).left_ms, 10 * MINUTE_MS);
    free_bans(bans);
}

/* Longest rules, and a rule that changes. */
static void takes_any_rule(void **state) {
    static const PenaltyRule longest = {SECOND_MS, YEAR_MS, YEAR_MS, kPenaltyAfterMax};
    Bans *bans = make_bans(64);
    uint64_t now_ms = NOW_MS, length_ms = SECOND_MS;

    (void)state;

    for (int i = 0; i < 30; i++) {
        Ban ban = reject(bans, 1, longest, kPenaltyAfterMax, now_ms);

        assert_int_equal(ban.left_ms, length_ms < YEAR_MS ? length_ms : YEAR_MS);
        now_ms += ban.left_ms;
        length_ms *= 2;
    }

    reject(bans, 2, longest, 999, NOW_MS);
    assert_int_equal(reject(bans, 2, once, 1, NOW_MS).left_ms, 10 * MINUTE_MS);
    assert_int_equal(reject(bans, 2, longest, 999, NOW_MS + 20 * MINUTE_MS).left_ms, 0);
    free_bans(bans);
}

/* Rejects a key until it is banned. */
static Ban ban_of(Bans *bans, uint64_t key, const PenaltyRule &by, uint64_t now_ms) {
    Ban ban = {};

    while (ban.left_ms == 0) {
        ban = bans->reject(key, by, now_ms);
    }

    return ban;
}

/* If the rule changes, the doublings of a key that is counting may be forgotten, but they
 * last for no longer than the rule says. */
static void forgets_when_the_rule_changes(void **state) {
    (void)state;

    for (uint64_t max_ms = 20 * MINUTE_MS; max_ms < 2 * DAY_MS; max_ms += max_ms / 7) {
        PenaltyRule next = {10 * MINUTE_MS, max_ms, DAY_MS, 20};
        Bans *bans = make_bans(64);

        reject(bans, 1, rule, 20, NOW_MS);
        reject(bans, 1, rule, 1, NOW_MS + 20 * MINUTE_MS);
        reject(bans, 2, rule, 20, NOW_MS);
        reject(bans, 2, rule, 1, NOW_MS + 20 * MINUTE_MS);

        assert_in_range(ban_of(bans, 1, next, NOW_MS + 21 * MINUTE_MS).doublings, 0, 1);

        uint64_t later_ms = NOW_MS + 20 * MINUTE_MS + max_ms * 18 / 16 + 18;
        assert_int_equal(ban_of(bans, 2, next, later_ms).doublings, 0);
        free_bans(bans);
    }
}

/* What is over goes first, then what counts; what was banned before stays longer. */
static void gives_up_the_least(void **state) {
    static const PenaltyRule soon = {10 * MINUTE_MS, 120 * MINUTE_MS, MINUTE_MS, 1};
    uint64_t now_ms = NOW_MS + 10 * MINUTE_MS + 1;
    Bans *bans = make_bans(1);

    (void)state;

    reject(bans, 1, rule, 20, NOW_MS);
    reject(bans, 2, rule, 1, now_ms);
    reject(bans, 3, rule, 19, now_ms - 2 * MINUTE_MS);
    reject(bans, 4, rule, 2, now_ms);

    reject(bans, 5, soon, 1, now_ms); /* for 3, which is over */
    reject(bans, 6, rule, 1, now_ms); /* for 2, of one rejection */
    assert_int_equal(reject(bans, 4, rule, 18, now_ms).left_ms, 10 * MINUTE_MS);
    assert_int_equal(reject(bans, 6, rule, 19, now_ms).left_ms, 10 * MINUTE_MS);
    assert_int_equal(reject(bans, 1, rule, 20, now_ms).left_ms, 20 * MINUTE_MS);
    free_bans(bans);
}

static void is_told_by_others(void **state) {
    Bans *bans = make_bans(64);

    (void)state;

    assert_true(bans->set(1, {MINUTE_MS, 2}, rule, NOW_MS));
    assert_false(bans->set(1, {MINUTE_MS, 2}, rule, NOW_MS));
    assert_false(bans->set(1, {MINUTE_MS - 1, 1}, rule, NOW_MS));
    assert_int_equal(left_ms(bans, 1, NOW_MS), MINUTE_MS);

    assert_true(bans->set(1, {2 * MINUTE_MS, 1}, rule, NOW_MS));
    assert_int_equal(left_ms(bans, 1, NOW_MS), 2 * MINUTE_MS);
    assert_int_equal(bans->find(1, NOW_MS).doublings, 2);

    assert_true(bans->set(1, {MINUTE_MS, 99}, rule, NOW_MS));
    assert_int_equal(left_ms(bans, 1, NOW_MS), 2 * MINUTE_MS);
    assert_int_equal(bans->find(1, NOW_MS).doublings, 31);

    /* instead of what was counted here, and doubled next time */
    reject(bans, 2, rule, 19, NOW_MS);
    assert_true(bans->set(2, {MINUTE_MS, 0}, rule, NOW_MS));
    assert_int_equal(reject(bans, 2, rule, 19, NOW_MS + MINUTE_MS).left_ms, 0);
    assert_int_equal(reject(bans, 2, rule, 1, NOW_MS + MINUTE_MS).left_ms, 20 * MINUTE_MS);
    free_bans(bans);
}

static void is_lifted(void **state) {
    Bans *bans = make_bans(1);

    (void)state;

    assert_false(bans->lift(1, NOW_MS));
    reject(bans, 1, rule, 20, NOW_MS);
    assert_true(bans->lift(1, NOW_MS));
    assert_int_equal(left_ms(bans, 1, NOW_MS), 0);
    assert_false(bans->lift(1, NOW_MS));

    /* doublings and rejections are forgotten */
    assert_int_equal(reject(bans, 1, rule, 19, NOW_MS).left_ms, 0);
    assert_false(bans->lift(1, NOW_MS));
    assert_int_equal(reject(bans, 1, rule, 20, NOW_MS).left_ms, 10 * MINUTE_MS);

    free_bans(bans);
}

/* Keys rejected once push out neither bans nor what is near one. */
static void stays_in_a_flood(void **state) {
    Bans *bans = make_bans(2);

    (void)state;

    for (uint64_t key = 1; key <= 3; key++) {
        reject(bans, key, rule, 20, NOW_MS);
    }

    reject(bans, 4, rule, 19, NOW_MS);

    for (uint64_t key = 100; key < 100000; key++) {
        reject(bans, key, rule, 1, NOW_MS + key / 1000);
    }

    for (uint64_t key = 1; key <= 3; key++) {
        assert_int_equal(left_ms(bans, key, NOW_MS), 10 * MINUTE_MS);
    }

    assert_int_equal(reject(bans, 4, rule, 1, NOW_MS + 100).left_ms, 10 * MINUTE_MS);
    free_bans(bans);
}

/* Of bans, the one goes first that ends first. */
static void keeps_the_longest(void **state) {
    Bans *bans = make_bans(1);

    (void)state;

    for (uint64_t key = 1; key <= 6; key++) {
        assert_true(bans->set(key, {key * MINUTE_MS, 0}, rule, NOW_MS));
    }

    assert_int_equal(bans->banned(NOW_MS, UINT64_MAX), LINE_PLACES);
    assert_int_equal(left_ms(bans, 2, NOW_MS), 0);
    assert_int_equal(left_ms(bans, 3, NOW_MS), 3 * MINUTE_MS);

    assert_false(bans->set(1, {MINUTE_MS, 0}, rule, NOW_MS));
    assert_int_equal(reject(bans, 2, rule, 20, NOW_MS).left_ms, 0);
    assert_int_equal(left_ms(bans, 3, NOW_MS), 3 * MINUTE_MS);
    assert_int_equal(reject(bans, 2, once, 1, NOW_MS).left_ms, 10 * MINUTE_MS);
    assert_int_equal(left_ms(bans, 3, NOW_MS), 0);
    free_bans(bans);
}

/* In a zone of a megabyte none of 1,000 bans is lost, and few of as many as half of the
 * places. */
static void holds_as_many_as_it_says(void **state) {
    Bans *bans = make_bans(2032);
    uint64_t n = bans->places() / 2;

    (void)state;

    for (uint64_t key = 0; key < 1000; key++) {
        reject(bans, key, once, 1, NOW_MS);
    }

    assert_int_equal(bans->banned(NOW_MS, UINT64_MAX), 1000);

    for (uint64_t key = 1000; key < n; key++) {
        reject(bans, key, once, 1, NOW_MS);
    }

    uint64_t banned = bans->banned(NOW_MS, UINT64_MAX);
    assert_in_range(banned, n * 99 / 100, n);

    /* an estimate, by a third of the places */
    assert_in_range(bans->banned(NOW_MS, bans->places() / 3), banned * 9 / 10, banned * 11 / 10);
    free_bans(bans);
}

static void *reject_often(void *data) {
    for (int i = 0; i < 249; i++) {
        for (uint64_t key = 0; key < 100; key++) {
            Ban ban = static_cast<Bans *>(data)->reject(
                key, {MINUTE_MS, MINUTE_MS, MINUTE_MS, kPenaltyAfterMax}, NOW_MS);

            assert_int_equal(ban.left_ms, 0);
        }
    }

    return NULL;
}

/* Each rejection of several threads is counted once. */
static void counts_exactly(void **state) {
    Bans *bans = make_bans(256);
    pthread_t thread[THREADS];

    (void)state;

    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, reject_often, bans), 0);
    }

    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }

    for (uint64_t key = 0; key < 100; key++) {
        const PenaltyRule by = {MINUTE_MS, MINUTE_MS, MINUTE_MS, kPenaltyAfterMax};

        assert_int_equal(reject(bans, key, by, 4, NOW_MS).left_ms, MINUTE_MS);
    }

    free_bans(bans);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_with_the_last_rejection),
        cmocka_unit_test(counts_within_a_window),
        cmocka_unit_test(doubles_and_forgets),
        cmocka_unit_test(forgets_while_it_counts),
        cmocka_unit_test(takes_any_rule),
        cmocka_unit_test(forgets_when_the_rule_changes),
        cmocka_unit_test(gives_up_the_least),
        cmocka_unit_test(is_told_by_others),
        cmocka_unit_test(is_lifted),
        cmocka_unit_test(stays_in_a_flood),
        cmocka_unit_test(keeps_the_longest),
        cmocka_unit_test(holds_as_many_as_it_says),
        cmocka_unit_test(counts_exactly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
