/* Copyright (C) the limit_sliding authors */

/* A worker stops at each one of its accesses while it adds a unit of a new key.  What another
 * worker reports meanwhile, of this key or of another one, is remembered. */

#include "step.hpp"

#include "redis/shared/outbox.hpp"

using namespace limit_sliding;

#define NOW_MS 1000000ull
#define INTERVAL_MS 100
#define MOST_MS 3000
#define BYTES 320 /* four places */
#define KEY 9

static struct {
    Outbox *outbox;
    uint64_t other; /* key of the other worker */
    uint64_t life;  /* in the last report of the other worker */
} game;

static void add(uint64_t key) {
    uint64_t due_ms;

    assert_int_not_equal(game.outbox->add(key, 1, NOW_MS, INTERVAL_MS, &due_ms),
                         Outbox::Added::kFull);
}

static Outbox::Report take(uint64_t key, uint64_t life) {
    Outbox::Report report;
    uint64_t due_ms;

    assert_int_equal(game.outbox->take(key, NOW_MS, MOST_MS, true, life, &report, &due_ms),
                     Outbox::Took::kTaken);
    return report;
}

/* Adds a unit, and all units of the key are acknowledged.  Further ones are due in a moment; keys
 * whose units are due first are evicted first. */
static void report(uint64_t key, uint64_t wait_ms) {
    add(key);

    uint64_t due_ms;
    const Outbox::Report report = take(key, 1000 + key);
    const int64_t total = report.acked + report.units;

    assert_true(game.outbox->acknowledge(key, report, total));
    game.outbox->done(key, NOW_MS, report,
                      {report.units, false, NOW_MS + wait_ms, 0, NOW_MS, false}, &due_ms);
    game.life = report.life;
}

static void report_other(void) { report(game.other, 2 * INTERVAL_MS); }

static void add_new(void) { add(KEY); }

/* All places are of keys that may be evicted, or were never used. */
static void prepare(bool is_full) {
    memset(step.memory, 0, step.bytes);
    game.outbox = Outbox::init(step.memory, BYTES);

    for (uint64_t key = 1; key <= (is_full ? 4 : 0); key++) {
        report(key, INTERVAL_MS);
    }
}

static void remembers(bool is_full, uint64_t other) {
    step_begin(4096);
    game.other = other;
    step.stopped = report_other;
    const unsigned times
        = step_stop_everywhere([=] { prepare(is_full); }, add_new,
                               [=] {
                                   if (step.accesses < step.stop_at) {
                                       return;
                                   } /* the other has done nothing */

                                   add(other);
                                   const Outbox::Report report = take(other, 7);
                                   if (report.life != game.life || report.acked < 1) {
                                       step_fault("the report of the other worker was forgotten");
                                   }
                               });

    assert_in_range(times, 10, 200);
    step_end_of(is_full ? "used places" : "new places");
}

static void test_same_key(void **state) {
    (void)state;
    remembers(false, KEY);
    remembers(true, KEY);
}

static void test_other_key(void **state) {
    (void)state;
    remembers(false, 8);
    remembers(true, 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_key),
        cmocka_unit_test(test_other_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
