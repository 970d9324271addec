/* Copyright (C) the limit_sliding authors */

/* The increases of counters in the last periods. */

#include "step.hpp"

#include "core/base/timeline.hpp"

#include <pthread.h>
#include <stdio.h>

using Pair = Timeline<2>;

static constexpr uint64_t kStartMs = 1000 * kPeriodMs;

/* Checks the increases of a counter, oldest first: "8 0 ". */
static void check(const Pair &timeline, size_t counter, const char *wanted) {
    char text[64];
    size_t length = 0;
    for (size_t i = 0; i < timeline.size(); i++) {
        length
            += snprintf(text + length, sizeof(text) - length, "%u ", timeline.increase(counter, i));
        assert_in_range(length, 1, sizeof(text) - 1);
    }
    assert_string_equal(text, wanted);
}

static void record(Pair *timeline, uint64_t first, uint64_t second, uint64_t now_ms) {
    timeline->record({first, second}, now_ms);
}

static void has_increases_by_period(void **) {
    Pair timeline = {};

    assert_int_equal(timeline.size(), 0);

    record(&timeline, 0, 0, kStartMs + 10);
    check(timeline, 0, "0 ");
    assert_int_equal(timeline.age_ms(kStartMs + 70), 70);

    /* a report within the period, and a timer a little after its end */
    record(&timeline, 3, 1, kStartMs + 4000);
    check(timeline, 0, "3 ");
    record(&timeline, 8, 1, kStartMs + kPeriodMs + 3);
    check(timeline, 0, "8 0 ");
    check(timeline, 1, "1 0 ");
    assert_int_equal(timeline.age_ms(kStartMs + kPeriodMs + 3), 3);

    record(&timeline, 9, 5, kStartMs + 2 * kPeriodMs);
    check(timeline, 0, "8 1 0 ");

    /* the clock of another worker is a little behind */
    record(&timeline, 10, 5, kStartMs + 2 * kPeriodMs - 4);
    check(timeline, 0, "8 2 0 ");
    assert_int_equal(timeline.age_ms(kStartMs + 2 * kPeriodMs - 4), 0);
}

/* Nobody recorded for some periods, which share the increase. */
static void shares_the_increase_of_a_gap(void **) {
    Pair timeline = {};

    record(&timeline, 0, 0, kStartMs);
    record(&timeline, 7, 1, kStartMs + 3 * kPeriodMs);
    check(timeline, 0, "3 2 2 0 ");
    check(timeline, 1, "1 0 0 0 ");

    /* the longest gap of which a period is known: no row is written twice */
    const uint64_t rise = 58 * 1000;
    record(&timeline, 7 + rise, 1, kStartMs + (3 + kPeriods - 1) * kPeriodMs - 1);
    assert_int_equal(timeline.size(), kPeriods);
    uint64_t sum = 0;
    for (size_t i = 0; i < timeline.size(); i++) {
        assert_in_range(timeline.increase(0, i), 0, 1003);
        sum += timeline.increase(0, i);
    }
    assert_int_equal(sum, 2 + rise); /* two periods have left the timeline */
}

/* The counters of a zone are older than its timeline if the API was added by a reload. */
static void omits_what_was_before_the_first_record(void **) {
    Pair timeline = {};

    record(&timeline, 1000000, 3, kStartMs);
    check(timeline, 0, "0 ");
    record(&timeline, 1000005, 4, kStartMs + kPeriodMs + 1);
    check(timeline, 0, "5 0 ");
    check(timeline, 1, "1 0 ");
}

/* Rows are used again. */
static void forgets_after_ten_minutes(void **) {
    Pair timeline = {};

    record(&timeline, 107, 0, kStartMs + 3 * kPeriodMs);

    for (uint64_t i = 1; i <= kPeriods; i++) {
        record(&timeline, 107 + i, 0, kStartMs + (3 + i) * kPeriodMs);
    }
    assert_int_equal(timeline.size(), kPeriods);
    for (size_t i = 0; i < kPeriods; i++) {
        assert_int_equal(timeline.increase(0, i), i == kPeriods - 1 ? 0 : 1);
    }

    /* the increase of a longer gap has no known period */
    record(&timeline, 1000, 0, kStartMs + 1000 * kPeriodMs);
    assert_int_equal(timeline.size(), kPeriods);
    for (size_t i = 0; i < kPeriods; i++) {
        assert_int_equal(timeline.increase(0, i), 0);
    }

    record(&timeline, 1004, 0, kStartMs + 1000 * kPeriodMs + 5);
    assert_int_equal(timeline.increase(0, kPeriods - 1), 4);
}

static Pair *shared_timeline;

static void record_in_the_next_period() { record(shared_timeline, 7, 0, kStartMs + kPeriodMs + 3); }

/* A process stands still before it begins a period, and another one begins the period and counts
 * an increase in it: the first one must not clear that increase. */
static void begins_a_period_once(void **) {
    constexpr unsigned kBeforeTheSwap = 2; /* accesses: the load of the last period, its swap */

    shared_timeline = static_cast<Pair *>(step_begin(4096));
    record(shared_timeline, 0, 0, kStartMs);
    record(shared_timeline, 5, 0, kStartMs + kPeriodMs - 1);

    step.stopped = record_in_the_next_period;
    step.stop_at = kBeforeTheSwap;
    STEP_THROUGH(record(shared_timeline, 9, 0, kStartMs + kPeriodMs + 2));
    check(*shared_timeline, 0, "5 4 ");
    step_end();
}

/* Threads that record at once count each increase exactly once. */
static constexpr uint64_t kThreads = 4, kRecords = 20000;

struct Game {
    Pair timeline;
    std::atomic<uint64_t> counter;
};

static void *play(void *data) {
    auto *game = static_cast<Game *>(data);
    for (uint64_t i = 0; i < kRecords; i++) {
        record(&game->timeline, ++game->counter, 0, kStartMs + 5);
    }
    return nullptr;
}

static void counts_once(void **) {
    Game game = {};
    pthread_t threads[kThreads];

    record(&game.timeline, 0, 0, kStartMs);
    for (auto &thread : threads) {
        assert_int_equal(pthread_create(&thread, nullptr, play, &game), 0);
    }
    for (auto &thread : threads) {
        assert_int_equal(pthread_join(thread, nullptr), 0);
    }

    /* the last record may have been of an older value */
    record(&game.timeline, kThreads * kRecords, 0, kStartMs + 6);
    assert_int_equal(game.timeline.increase(0, 0), kThreads * kRecords);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_increases_by_period),
        cmocka_unit_test(shares_the_increase_of_a_gap),
        cmocka_unit_test(omits_what_was_before_the_first_record),
        cmocka_unit_test(forgets_after_ten_minutes),
        cmocka_unit_test(begins_a_period_once),
        cmocka_unit_test(counts_once),
    };

    return cmocka_run_group_tests_name("timeline", tests, NULL, NULL);
}
