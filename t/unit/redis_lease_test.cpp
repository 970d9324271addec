/* Copyright (C) the limit_sliding authors */

/*
 * Units leased of token buckets by the script in a real Redis.  Nodes spend
 * them whenever they may, as late as they may above all: what is admitted is
 * never more than a bucket of that capacity and rate admits.
 */

#include <stdio.h>

#include "redis/protocol/scripts.hpp"
#include "redis_server.hpp"
#include "support.hpp"

using namespace limit_sliding;

#define RUNS draws(240)
#define CALLS 400
#define START_MS 1700000000123ull

enum strategy_t { AT_ONCE, AT_LAST, AT_RANDOM, HALF, STRATEGIES };

struct run_t {
    uint64_t window_ms;
    uint64_t limit;
    uint64_t burst; /* 0: the limit */
    uint64_t cost;
    strategy_t strategy;
    uint64_t random;
    uint64_t now_ms;
    char key[32];

    /* what a bucket would have, x window_ms */
    uint64_t level;
    uint64_t level_ms;

    /* requests that nodes may admit yet, of this epoch and the one before */
    uint64_t leased[2];
    uint64_t epoch;

    uint64_t admitted;
    uint64_t granted_leases;
};

static redis_server_t server;
static char script_sha[41];

static int start(void **state) {
    (void)state;
    assert_true(redis_server_start(&server));
    assert_true(redis_server_load(&server, 0x1f, script_sha));
    return 0;
}

static int stop(void **state) {
    (void)state;
    redis_server_stop(&server);
    return 0;
}

static uint64_t epoch_ms(const run_t *run) {
    return run->window_ms < 16000 ? run->window_ms / 16 : 1000;
}

static void admit(run_t *run, uint64_t n) {
    uint64_t capacity = (run->burst ? run->burst : run->limit) * run->window_ms;
    uint64_t gone = (run->now_ms - run->level_ms) * run->limit;

    run->level = run->level > gone ? run->level - gone : 0;
    run->level += n * run->cost * run->window_ms;
    run->level_ms = run->now_ms;
    run->admitted += n;

    if (run->level > capacity) {
        fail_msg("%s: at %llu the bucket has %llu of %llu", run->key,
                 (unsigned long long)run->now_ms, (unsigned long long)run->level,
                 (unsigned long long)capacity);
    }
}

/* What nodes do at a moment that is, or is not, the last one of an epoch. */
static void spend(run_t *run, int is_last) {
    for (unsigned i = 0; i < 2; i++) {
        uint64_t n = 0;

        if (run->strategy == AT_ONCE || (is_last && i == 1)) {
            n = run->leased[i];
        } else if (run->strategy == AT_RANDOM) {
            n = random_below(&run->random, run->leased[i] + 1);
        }

        if (run->strategy == HALF) { n /= 2; }

        admit(run, n);
        run->leased[i] -= n;
    }
}

static void pass(run_t *run, uint64_t ms) {
    uint64_t end_ms = run->now_ms + ms;

    while (run->now_ms < end_ms) {
        uint64_t last_ms = (run->epoch + 1) * epoch_ms(run) - 1;

        if (last_ms >= end_ms) {
            run->now_ms = end_ms;
            return;
        }

        run->now_ms = last_ms > run->now_ms ? last_ms : run->now_ms;
        spend(run, 1);

        run->now_ms++;
        run->epoch++;
        run->leased[1] = run->leased[0];
        run->leased[0] = 0;
    }
}

/* Returns how many of n requests were granted, of which the last are leased. */
static uint64_t call(run_t *run, uint64_t n, uint64_t leased) {
    char text[256];
    const char *argv[24] = {"EVALSHA", script_sha, "1", run->key, "1"};
    int argc = 5;
    redisReply *reply;
    uint64_t granted;

    snprintf(text, sizeof(text), "%d %llu %llu %llu %llu 3 %llu %llu 1 1 %llu",
             number_of(Algorithm::kTokenBucket), (unsigned long long)run->window_ms,
             (unsigned long long)run->limit, (unsigned long long)run->burst,
             (unsigned long long)run->cost, (unsigned long long)leased, (unsigned long long)n,
             (unsigned long long)run->now_ms);

    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }

    reply = static_cast<redisReply *>(redisCommandArgv(server.context, argc, argv, NULL));
    assert_non_null(reply);

    if (reply->type != REDIS_REPLY_ARRAY) { fail_msg("%s", reply->str); }

    granted = (uint64_t)reply->element[1]->integer;
    freeReplyObject(reply);

    assert_in_range(granted, 0, n);

    return granted;
}

static void ask(run_t *run, uint64_t needed, uint64_t leased) {
    uint64_t granted = call(run, needed + leased, leased);
    uint64_t extra = granted > needed ? granted - needed : 0;

    admit(run, granted - extra);

    run->leased[0] += extra;
    run->granted_leases += extra;

    spend(run, 0);
}

static void draw(run_t *run, uint64_t seed) {
    static const uint64_t windows[] = {100, 1000, 7777, 60000, 3600000};

    memset(run, 0, sizeof(*run));
    run->random = seed;
    run->strategy = (strategy_t)(seed % STRATEGIES);
    run->window_ms = windows[random_below(&run->random, LENGTH(windows))];
    run->limit = random_scale(&run->random, 1, 100000);
    run->burst = random_below(&run->random, 2) ? random_scale(&run->random, 1, 2 * run->limit) : 0;
    run->cost = random_below(&run->random, 4) ? 1 : 3;
    run->now_ms = START_MS + random_below(&run->random, 100000);
    run->level_ms = run->now_ms;
    run->epoch = run->now_ms / epoch_ms(run);
    snprintf(run->key, sizeof(run->key), "run:{%llu}", (unsigned long long)seed);
}

static void never_more_than_a_bucket(void **state) {
    uint64_t leases = 0;

    (void)state;

    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        run_t run;

        draw(&run, seed);

        for (unsigned i = 0; i < CALLS; i++) {
            uint64_t capacity = run.burst ? run.burst : run.limit;

            /* or all that there is, while leases are out */
            ask(&run,
                1 + random_below(&run.random, random_below(&run.random, 3) ? 3 : capacity + 3),
                random_below(&run.random, capacity / 3 + 2));
            pass(&run, random_below(&run.random, 3) == 0
                           ? random_below(&run.random, run.window_ms)
                           : random_below(&run.random, epoch_ms(&run)));
        }

        leases += run.granted_leases;
    }

    assert_true(leases > 10 * RUNS);
}

/* At three quarters of its rate a bucket of a window never rejects. */
static void leases_do_not_reject(void **state) {
    run_t run;
    uint64_t n = 0;

    (void)state;

    draw(&run, 4);
    run.strategy = AT_ONCE;
    run.window_ms = 60000;
    run.limit = 6000;
    run.burst = 0;
    run.cost = 1;
    run.epoch = run.now_ms / epoch_ms(&run);
    strcpy(run.key, "steady:{1}");

    for (unsigned i = 0; i < 600; i++) {
        uint64_t before = run.admitted;

        ask(&run, 5, 10);
        assert_true(run.admitted - before >= 5);
        n += run.admitted - before;
        pass(&run, (run.admitted - before) * 40 / 3);
    }

    /* most by leases */
    assert_true(n > 600 * 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_more_than_a_bucket),
        cmocka_unit_test(leases_do_not_reject),
    };

    return cmocka_run_group_tests_name("redis_lease", tests, start, stop);
}
