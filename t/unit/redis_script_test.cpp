/* Copyright (C) the limit_sliding authors */

/*
 * The script in a real Redis and the core, through the same random histories:
 * the same requests are admitted, and all are told the same.  The script's
 * clock is the history's; what it lets expire is gone by that clock, too.
 * SEED=n in the environment runs one history, of that seed.
 */

#include <stdio.h>

#include "history.hpp"
#include "redis/protocol/remote_state.hpp"
#include "redis_script.hpp"

using namespace limit_sliding;

#define HISTORIES draws(200)
#define ZONE_BYTES (64 * MEGABYTE_ZONE_BYTES / 64 / 128 * 128)

/* Adding a member takes its time. */
#define LOG_COST_MAX 3000

#define HOUR_MS 3600000ull

struct run_t {
    const history_t *history;
    const request_t *request;
    Policy policy;
    Zone *zone;
    uint64_t random;
    char name[64]; /* of this run's keys */

    /* the latest that was admitted, and not given back yet */
    Claim taken;
    Taken taken_of;
    uint64_t taken_key;

    int records; /* what is rejected, too */
};

/* Added to what a claim is for. */
#define RECORDS 16

/* The script for zones with settled costs, whose debts redis_charge_test is about. */
#define SETTLES 2

#define CHECK_SAME(run, what, ours, theirs)                                                        \
    do {                                                                                           \
        if ((ours) != (theirs)) {                                                                  \
            const request_t *r_ = (run)->request;                                                  \
            fail_msg("SEED=%llu, algorithm %d, precision %u, burst %u, window"                     \
                     " %llu ms, request %ld (at %llu, limit %u, cost %u), "                        \
                     "line %d: %s is %llu in the core, %llu in Redis",                             \
                     (unsigned long long)(run)->history->seed, (run)->policy.algorithm,            \
                     (run)->policy.precision, (run)->policy.burst,                                 \
                     (unsigned long long)(run)->policy.window_ms,                                  \
                     (long)(r_ - (run)->history->request), (unsigned long long)r_->now_ms,         \
                     r_->limit, r_->cost, __LINE__, what, (unsigned long long)(ours),              \
                     (unsigned long long)(theirs));                                                \
        }                                                                                          \
    } while (0)

/* One ask of m claims that differ in their keys; `taken` is of what is given back,
 * else null. */
static redisReply *ask(const run_t *run, const char *const *keys, unsigned m, unsigned units,
                       uint64_t cost, Purpose look, const Taken *taken) {
    const request_t *r = run->request;
    char text[20][32];
    const char *argv[40]
        = {"EVALSHA",
           script_sha[run->history->seed % SCRIPT_KINDS + (run->records ? SCRIPT_KINDS : 0)]};
    unsigned argc = 2;
    unsigned n = 0;

#define NUMBER(value)                                                                              \
    do {                                                                                           \
        snprintf(text[n], sizeof(text[n]), "%llu", (unsigned long long)(value));                   \
        argv[argc++] = text[n++];                                                                  \
    } while (0)

    NUMBER(m);

    for (unsigned i = 0; i < m; i++) {
        argv[argc++] = keys[i];
    }

    NUMBER(1);
    NUMBER(run->policy.algorithm);
    NUMBER(run->policy.window_ms);
    NUMBER(r->limit);
    NUMBER(run->policy.algorithm == Algorithm::kCounter
               ? run->policy.precision + (run->policy.strict ? 64 : 0)
               : run->policy.burst);
    NUMBER(cost);
    NUMBER(static_cast<unsigned>(look)
           + (run->records && static_cast<unsigned>(look) < 2 ? RECORDS : 0));

    if (taken) {
        NUMBER(taken->now_ms);
        NUMBER(taken->values[0]);
        NUMBER(taken->values[1]);
        NUMBER(taken->window);
    }

    /* may be left out where all are 1 */
    if (units != 1 || m != 1 || r->now_ms % 2 == 0) {
        NUMBER(units);
        NUMBER(m);

        for (unsigned i = 0; i < m; i++) {
            NUMBER(1);
        }
    }

    NUMBER(r->now_ms);

    return static_cast<redisReply *>(redisCommandArgv(server.context, (int)argc, argv, NULL));
}

/* `rejected` units have been recorded since. */
static void check_verdict(const run_t *run, const Claim *claim, const RemoteState *remote,
                          unsigned granted, int admitted, uint64_t rejected) {
    const request_t *r = run->request;
    Verdict ours;
    Verdict theirs;

    ours = claim->describe(r->now_ms);
    theirs = remote->describe(run->policy, r->cost, granted, admitted,
                              claim->purpose != Purpose::kConsume, rejected);

    CHECK_SAME(run, "limit", ours.limit, theirs.limit);
    CHECK_SAME(run, "remaining", ours.remaining, theirs.remaining);
    CHECK_SAME(run, "excess", ours.excess, theirs.excess);
    CHECK_SAME(run, "delay", ours.delay_ms, theirs.delay_ms);

    CHECK_SAME(run, "reset", ours.reset_ms, theirs.reset_ms);
    CHECK_SAME(run, "retry after", ours.retry_after_ms, theirs.retry_after_ms);
}

static void run_request(run_t *run) {
    const request_t *r = run->request;
    unsigned units
        = random_below(&run->random, 4) ? 1 : 1 + (unsigned)random_below(&run->random, 5);
    int look = random_below(&run->random, 16) == 0;

    /* requests of a call are decided by one state; in the core an admission may
     * change the number of its parts, after one of another limit */
    if (run->policy.precision == 0 && run->history->limits == HISTORY_LIMIT_A_REQUEST) {
        units = 1;
    }

    char text[96];
    const char *key = text;
    int64_t numbers[68];
    RemoteState remote = {r->now_ms, r->limit, numbers};
    redisReply *reply;
    unsigned granted;

    snprintf(text, sizeof(text), "%s:{%llu}", run->name, (unsigned long long)r->key);

    reply = ask(run, &key, 1, units, r->cost, look ? Purpose::kLook : Purpose::kConsume, NULL);
    assert_non_null(reply);

    if (reply->type != REDIS_REPLY_ARRAY) { fail_msg("%s", reply->str); }

    CHECK_SAME(run, "limit", r->limit, reply->element[2]->integer);
    assert_in_range(reply->elements, 4, LENGTH(numbers));

    granted = (unsigned)reply->element[1]->integer;

    for (unsigned i = 3; i < reply->elements; i++) {
        numbers[i - 3] = reply->element[i]->integer;
    }

    assert_int_equal(reply->elements, 3 + remote_values(run->policy, numbers[0]));
    assert_true(are_remote_values(run->policy, r->limit, r->now_ms, numbers));
    assert_true(granted == 0 || remote.has_room(run->policy, Wide{look ? 1 : granted} * r->cost));

    freeReplyObject(reply);

    for (unsigned i = 0; i < units; i++) {
        Claim claim = claim_of(run->zone, &run->policy, r->key, r->limit, r->cost);
        int admitted;

        claim.purpose = look ? Purpose::kLook : Purpose::kConsume;
        limit_sliding::acquire(&claim, 1, r->now_ms);
        admitted = claim.outcome == Outcome::kAdmitted;

        CHECK_SAME(run, "admitted", admitted, i < granted);

        if (admitted && !look && r->cost > 0) {
            run->taken = claim;
            run->taken_of = remote.taken(run->policy, uint64_t{i} * r->cost);
            run->taken_key = r->key;
        }

        uint64_t rejected = 0;

        if (!admitted && run->records) {
            record_rejected(&claim, r->now_ms);
            rejected = uint64_t{units - granted} * r->cost;
        }

        /* the script tells what is recorded of all, and a log all times of after that */
        bool has_times
            = !run->records || granted == units || run->policy.algorithm != Algorithm::kLog;
        bool is_told = admitted ? has_times : rejected == 0 || i + 1 == units;

        if (run->history->is_steady && is_told) {
            /* else the core tells times as of the latest that it knows */
            check_verdict(run, &claim, &remote, admitted ? i : granted, admitted, rejected);
        }
    }
}

/* Gives back in both some of the last admission. */
static void give_some_back(run_t *run) {
    const request_t *r = run->request;
    const Taken &of = run->taken_of;

    /* the core gives nothing back after that, nor as exactly of a bucket */
    if (run->taken.cost == 0 || run->taken_key != r->key || r->now_ms - of.now_ms >= 2 * HOUR_MS
        || run->policy.algorithm >= Algorithm::kTokenBucket || random_below(&run->random, 4) != 0) {
        return;
    }

    uint64_t cost = 1 + random_below(&run->random, run->taken.cost);
    char text[96];
    const char *key = text;

    snprintf(text, sizeof(text), "%s:{%llu}", run->name, (unsigned long long)r->key);
    redisReply *reply = ask(run, &key, 1, 1, cost, Purpose::kGiveBack, &of);
    assert_non_null(reply);

    if (reply->type != REDIS_REPLY_ARRAY) { fail_msg("%s", reply->str); }

    assert_int_equal(reply->elements, 4);
    assert_int_equal(reply->element[1]->integer, 1);
    freeReplyObject(reply);

    run->taken.limit = r->limit;
    refund(run->taken, cost, of.now_ms, r->now_ms);
    run->taken.cost = 0;
}

static unsigned bits_of(uint64_t n) { return n == 0 ? 0 : 64 - (unsigned)__builtin_clzll(n); }

/*
 * Buckets in the core keep fractions of requests only so far.  Those in Redis
 * with a burst are kept only until they have run off under the lowest limit of
 * that time: without one, a window is enough under any.  A log in
 * Redis forgets what is over even where it rejects, for any clock; and if rejected
 * requests are recorded, it holds no more than the limit, or than it has held.
 */
static int is_same(const run_t *run) {
    if (run->policy.algorithm == Algorithm::kLog) {
        return run->history->is_steady
               && !(run->records && run->history->limits == HISTORY_LIMIT_A_REQUEST);
    }

    if (run->policy.algorithm < Algorithm::kTokenBucket) { return 1; }

    /* as Bucket's state divides its bits */
    unsigned time = bits_of(run->policy.window_ms) + bits_of(run->policy.burst) + 2;
    unsigned value = 57 - (time < 24 ? 24 : time > 34 ? 34 : time);

    for (size_t i = 0; i < HISTORY_LENGTH; i++) {
        uint64_t capacity = run->policy.capacity(run->history->request[i].limit);

        if ((capacity + 1) * run->policy.window_ms >> value != 0) { return 0; }
    }

    return run->history->limits < HISTORY_LIMIT_A_REQUEST || run->policy.burst == 0;
}

static int run_history(const history_t *history, Policy policy) {
    static unsigned runs;
    run_t run = {.history = history, .policy = policy};

    run.records = history->seed / 3 % 2;
    run.policy.counts_rejected = run.records;

    if (!is_same(&run)) { return 0; }

    run.zone = make_zone_for(&policy, ZONE_BYTES);
    run.random = history->seed;
    const bool settles = history->seed % 4 == SETTLES && run.policy.algorithm != Algorithm::kLog
                         && run.policy.precision < 2 && history->is_steady;
    snprintf(run.name, sizeof(run.name), "run%u", runs++);

    for (size_t i = 0; i < HISTORY_LENGTH; i++) {
        run.request = &history->request[i];

        if (policy.algorithm != Algorithm::kLog || run.request->cost <= LOG_COST_MAX) {
            run_request(&run);
        }

        if (settles) { give_some_back(&run); }
    }

    free(run.zone);

    return 1;
}

static void decides_as_the_core(void **state) {
    static history_t history;
    const char *seed = getenv("SEED");
    unsigned ran[LENGTH(algorithms)] = {0};

    (void)state;

    for (uint64_t i = 0; i < (seed ? 1 : HISTORIES); i++) {
        history_draw(&history, seed ? strtoull(seed, NULL, 10) : 1000 + i);

        for (Algorithm algorithm : algorithms) {
            static const uint32_t precisions[] = {0, 0, 1, 2, 7, 60, 0};
            Policy policy = {history.window_ms, algorithm, WhenFull::kEvict, 0,
                             algorithm >= Algorithm::kTokenBucket ? history.burst : 0};

            policy.undelayed = history.undelayed;

            if (algorithm == Algorithm::kCounter) {
                policy.precision = precisions[i % LENGTH(precisions)];
                policy.strict = policy.precision < 2 && i % 4 == 1;
            }

            ran[number_of(algorithm)] += (unsigned)run_history(&history, policy);
        }
    }

    for (size_t i = 0; !seed && i < LENGTH(algorithms); i++) {
        assert_true(ran[i] >= HISTORIES / 8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decides_as_the_core),
    };

    return cmocka_run_group_tests_name("redis script", tests, start, stop);
}
