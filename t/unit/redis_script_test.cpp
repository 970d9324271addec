/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * The script in a real Redis and the core, through the same random histories:
 * the same requests are admitted, and all are told the same.  The script's
 * clock is the history's; what it lets expire is gone by that clock, too.
 * SEED=n in the environment runs one history, of that seed.
 */

#include <stdio.h>
#include <unistd.h>

#include "history.hpp"
#include "redis/logic/remote.hpp"
#include "redis/scripts.hpp"
#include "redis_server.hpp"
#include "support.hpp"

using namespace limit_sliding;

#define HISTORIES 200
#define ZONE_BYTES (64 * MEGABYTE_ZONE_BYTES / 64 / 128 * 128)

/* Adding a member takes its time. */
#define LOG_COST_MAX 3000

struct run_t {
    const history_t *history;
    const request_t *request;
    Policy policy;
    Zone *zone;
    uint64_t random;
    char name[64]; /* of this run's keys */
};

#define CHECK_SAME(run, what, ours, theirs)                                    \
    do {                                                                       \
        if ((ours) != (theirs)) {                                              \
            const request_t *r_ = (run)->request;                              \
            fail_msg("SEED=%llu, algorithm %d, precision %u, burst %u, window" \
                     " %llu ms, request %ld (at %llu, limit %u, cost %u), "    \
                     "line %d: %s is %llu in the core, %llu in Redis",         \
                     (unsigned long long)(run)->history->seed,                 \
                     (run)->policy.algorithm, (run)->policy.precision,         \
                     (run)->policy.burst,                                      \
                     (unsigned long long)(run)->policy.window_ms,              \
                     (long)(r_ - (run)->history->request),                     \
                     (unsigned long long)r_->now_ms, r_->limit, r_->cost,      \
                     __LINE__, what, (unsigned long long)(ours),               \
                     (unsigned long long)(theirs));                            \
        }                                                                      \
    } while (0)

static redis_server_t server;

/* For one server, and in a cluster. */
static char script_sha[2][41];

static int start(void **state)
{
    (void)state;
    assert_true(redis_server_start(&server));

    assert_true(redis_server_load(&server, 0x1f, script_sha[0]));
    assert_true(
        redis_server_load(&server, 0x1f | kScriptCluster, script_sha[1]));

    return 0;
}

static int stop(void **state)
{
    (void)state;
    redis_server_stop(&server);
    return 0;
}

static void forget_all(void)
{
    freeReplyObject(redisCommand(server.context, "FLUSHALL"));
}

/* One ask of m claims that differ in their keys. */
static redisReply *ask(const run_t *run, const char *const *keys, unsigned m,
                       unsigned units, int look)
{
    const request_t *r = run->request;
    char text[20][32];
    const char *argv[40] = {"EVALSHA", script_sha[run->history->seed % 2]};
    unsigned argc = 2;
    unsigned n = 0;

#define NUMBER(value)                                                          \
    do {                                                                       \
        snprintf(text[n], sizeof(text[n]), "%llu",                             \
                 (unsigned long long)(value));                                 \
        argv[argc++] = text[n++];                                              \
    } while (0)

    NUMBER(m);

    for (unsigned i = 0; i < m; i++) {
        argv[argc++] = keys[i];
    }

    NUMBER(1);
    NUMBER(run->policy.algorithm);
    NUMBER(run->policy.window_ms);
    NUMBER(r->limit);
    NUMBER(run->policy.algorithm == Algorithm::kCounter ? run->policy.precision
                                                        : run->policy.burst);
    NUMBER(r->cost);
    NUMBER(look);

    /* may be left out where all are 1 */
    if (units != 1 || m != 1 || r->now_ms % 2 == 0) {
        NUMBER(units);
        NUMBER(m);

        for (unsigned i = 0; i < m; i++) {
            NUMBER(1);
        }
    }

    NUMBER(r->now_ms);

    return static_cast<redisReply *>(
        redisCommandArgv(server.context, (int)argc, argv, NULL));
}

static void check_verdict(const run_t *run, const Claim *claim,
                          const RemoteState *remote, unsigned granted,
                          int admitted)
{
    const request_t *r = run->request;
    Verdict ours;
    Verdict theirs;

    ours = claim->describe(r->now_ms);
    theirs = remote->describe(run->policy, r->cost, granted, admitted,
                              claim->purpose != Purpose::kConsume);

    CHECK_SAME(run, "limit", ours.limit, theirs.limit);
    CHECK_SAME(run, "remaining", ours.remaining, theirs.remaining);
    CHECK_SAME(run, "excess", ours.excess, theirs.excess);
    CHECK_SAME(run, "delay", ours.delay_ms, theirs.delay_ms);
    CHECK_SAME(run, "reset", ours.reset_ms, theirs.reset_ms);
    CHECK_SAME(run, "retry after", ours.retry_after_ms, theirs.retry_after_ms);
}

static void run_request(run_t *run)
{
    const request_t *r = run->request;
    unsigned values = remote_values(run->policy);
    unsigned units = random_below(&run->random, 4)
                         ? 1
                         : 1 + (unsigned)random_below(&run->random, 5);
    int look = random_below(&run->random, 16) == 0;
    char text[96];
    const char *key = text;
    int64_t numbers[64];
    RemoteState remote = {r->now_ms, r->limit, numbers};
    redisReply *reply;
    unsigned granted;

    snprintf(text, sizeof(text), "%s:{%llu}", run->name,
             (unsigned long long)r->key);

    reply = ask(run, &key, 1, units, look);
    assert_non_null(reply);

    if (reply->type != REDIS_REPLY_ARRAY) {
        fail_msg("%s", reply->str);
    }

    assert_int_equal(reply->elements, 3 + values);
    CHECK_SAME(run, "limit", r->limit, reply->element[2]->integer);

    granted = (unsigned)reply->element[1]->integer;

    for (unsigned i = 0; i < values; i++) {
        numbers[i] = reply->element[3 + i]->integer;
    }

    freeReplyObject(reply);

    for (unsigned i = 0; i < units; i++) {
        Claim claim
            = claim_of(run->zone, &run->policy, r->key, r->limit, r->cost);
        int admitted;

        claim.purpose = look ? Purpose::kLook : Purpose::kConsume;
        limit_sliding::acquire(&claim, 1, r->now_ms);
        admitted = claim.outcome == Outcome::kAdmitted;

        CHECK_SAME(run, "admitted", admitted, i < granted);

        if (run->history->is_steady) {
            /* else the core tells times as of the latest that it knows */
            check_verdict(run, &claim, &remote, admitted ? i : granted,
                          admitted);
        }
    }
}

static unsigned bits_of(uint64_t n)
{
    return n == 0 ? 0 : 64 - (unsigned)__builtin_clzll(n);
}

/*
 * Buckets in the core keep fractions of requests only so far.  Those in Redis
 * with a burst are kept only until they have run off under the lowest limit of
 * that time: without one, a window is enough under any.  A log in
 * Redis forgets what is over even where it rejects, for any clock.
 */
static int is_same(const run_t *run)
{
    if (run->policy.algorithm == Algorithm::kLog) {
        return run->history->is_steady;
    }

    if (run->policy.algorithm < Algorithm::kTokenBucket) {
        return 1;
    }

    /* as Bucket's state divides its bits */
    unsigned time
        = bits_of(run->policy.window_ms) + bits_of(run->policy.burst) + 2;
    unsigned value = 57 - (time < 24 ? 24 : time > 34 ? 34 : time);

    for (size_t i = 0; i < HISTORY_LENGTH; i++) {
        uint64_t capacity
            = run->policy.capacity(run->history->request[i].limit);

        if ((capacity + 1) * run->policy.window_ms >> value != 0) {
            return 0;
        }
    }

    return run->history->limits < HISTORY_LIMIT_A_REQUEST
           || run->policy.burst == 0;
}

static int run_history(const history_t *history, Policy policy)
{
    static unsigned runs;
    run_t run = {.history = history, .policy = policy};

    if (!is_same(&run)) {
        return 0;
    }

    run.zone = make_zone_for(&policy, ZONE_BYTES);
    run.random = history->seed;
    snprintf(run.name, sizeof(run.name), "run%u", runs++);

    for (size_t i = 0; i < HISTORY_LENGTH; i++) {
        run.request = &history->request[i];

        if (policy.algorithm != Algorithm::kLog
            || run.request->cost <= LOG_COST_MAX) {
            run_request(&run);
        }
    }

    free(run.zone);

    return 1;
}

static void decides_as_the_core(void **state)
{
    static history_t history;
    const char *seed = getenv("SEED");
    unsigned ran[LENGTH(algorithms)] = {0};

    (void)state;

    for (uint64_t i = 0; i < (seed ? 1 : HISTORIES); i++) {
        history_draw(&history, seed ? strtoull(seed, NULL, 10) : 1000 + i);

        for (Algorithm algorithm : algorithms) {
            static const uint32_t precisions[] = {1, 2, 7, 60};
            Policy policy
                = {history.window_ms, algorithm, WhenFull::kEvict, 0,
                   algorithm >= Algorithm::kTokenBucket ? history.burst : 0};

            if (algorithm == Algorithm::kCounter) {
                policy.precision = precisions[i % LENGTH(precisions)];
            }

            ran[number_of(algorithm)]
                += (unsigned)run_history(&history, policy);
        }
    }

    for (size_t i = 0; !seed && i < LENGTH(algorithms); i++) {
        assert_true(ran[i] >= HISTORIES / 8);
    }
}

/* ---- what is given back ---- */

struct policy_text_t {
    const char *name;
    const char *kind; /* algorithm, window, limit, precision or burst */
    unsigned window_ms;
};

/* The reply to one ask of n units at this time, but for its first number. */
static void take(uint64_t now_ms, const char *key, const policy_text_t *policy,
                 const char *rest, unsigned units, long long numbers[64])
{
    redisReply *reply;
    char text[256];
    const char *argv[24] = {"EVALSHA", script_sha[1], "1", key, "1"};
    int argc = 5;

    snprintf(text, sizeof(text), "%s %s %u 1 1 %llu", policy->kind, rest, units,
             (unsigned long long)now_ms);

    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }

    reply = static_cast<redisReply *>(
        redisCommandArgv(server.context, argc, argv, NULL));
    assert_non_null(reply);

    if (reply->type != REDIS_REPLY_ARRAY) {
        fail_msg("%s", reply->str);
    }

    memset(numbers, 0xff, 64 * sizeof(numbers[0]));
    assert_int_equal(reply->element[0]->integer, now_ms);

    for (size_t i = 1; i < reply->elements; i++) {
        numbers[i - 1] = reply->element[i]->integer;
    }

    freeReplyObject(reply);
}

/* The same for both keys, and both are told the same. */
static void take_both(uint64_t now_ms, const policy_text_t *policy,
                      const char *rest, unsigned units, uint64_t step)
{
    long long one[64];
    long long other[64];

    take(now_ms, "one", policy, rest, units, one);
    take(now_ms, "other", policy, rest, units, other);

    if (memcmp(one, other, sizeof(one)) != 0) {
        fail_msg("%s, step %llu (at %llu): %lld %lld %lld %lld, and after a "
                 "unit was given back %lld %lld %lld %lld",
                 policy->name, (unsigned long long)step,
                 (unsigned long long)now_ms, one[0], one[1], one[2], one[3],
                 other[0], other[1], other[2], other[3]);
    }
}

/* A third consumes between the two, if that makes no difference to it. */
static void third_takes(uint64_t now_ms, const policy_text_t *policy)
{
    long long one[64];
    long long other[64];

    take(now_ms, "one", policy, "1 1", 1, one);
    take(now_ms, "other", policy, "1 1", 1, other);

    if (one[0] == 1 && other[0] == 1) {
        take(now_ms, "one", policy, "1 0", 1, one);
        take(now_ms, "other", policy, "1 0", 1, other);
    }
}

static unsigned run_given_back(const policy_text_t *policy, uint64_t seed)
{
    uint64_t random = seed;
    uint64_t now_ms = 1700000000000 + random_below(&random, 100000);
    unsigned given = 0;

    forget_all();

    for (uint64_t step = 0; step < 200; step++) {
        unsigned cost = 1 + (unsigned)random_below(&random, 3);
        unsigned before = (unsigned)random_below(&random, 3);
        long long taken[64];
        char rest[96];

        now_ms += random_below(&random, policy->window_ms / 4);
        snprintf(rest, sizeof(rest), "%u %d", cost,
                 random_below(&random, 8) == 0);
        take_both(now_ms, policy, rest, 1 + before, step);

        if (random_below(&random, 2)) {
            continue;
        }

        snprintf(rest, sizeof(rest), "%u 0", cost);
        take(now_ms, "other", policy, rest, 1, taken);

        if (taken[0] == 0) {
            continue;
        }

        snprintf(rest, sizeof(rest), "%u 2 %llu %lld", cost,
                 (unsigned long long)now_ms, taken[2]);

        if (random_below(&random, 2)) {
            now_ms += random_below(&random, policy->window_ms / 3);

            if (random_below(&random, 2)) {
                third_takes(now_ms, policy);
                now_ms += random_below(&random, 3);
            }
        }

        take(now_ms, "other", policy, rest, 1, taken);
        assert_int_equal(taken[0], 1);
        given++;
    }

    return given;
}

static void given_back_is_never_taken(void **state)
{
    static const policy_text_t policies[] = {
        {"counter", "0 1000 5 1", 1000},
        {"counter of many", "0 60000 100 1", 60000},
        {"precision 7", "0 1000 9 7", 1000},
        {"log", "1 1000 9 0", 1000},
        {"fixed", "2 1000 5 0", 1000},
        {"token_bucket", "3 1000 7 0", 1000},
        {"token_bucket burst", "3 1000 3 11", 1000},
        {"leaky_bucket", "4 1000 7 6", 1000},
        {"token_bucket, hardly used", "3 1000 60 0", 1000},
        {"leaky_bucket, hardly used", "4 1000 60 20", 1000},
    };

    (void)state;

    for (size_t i = 0; i < LENGTH(policies); i++) {
        unsigned given = 0;

        for (uint64_t seed = 1; seed <= 10; seed++) {
            given += run_given_back(&policies[i], seed);
        }

        assert_true(given >= 50);
    }
}

/* ---- hand-worked calls, by Redis's own clock ---- */

#define HOUR_LIMIT_2 "0 3600000 2 1 1 0"

/* The script of all algorithms. */
static redisReply *call_reply(const char *keys, const char *arguments)
{
    char command[1024];
    char script[32768];
    const char *argv[64] = {"EVAL", script};
    int argc = 2;
    redisReply *reply;

    limit_sliding::script(0x1f, script, sizeof(script));
    snprintf(command, sizeof(command), "%s %s", keys, arguments);

    for (char *word = strtok(command, " "); word; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }

    reply = static_cast<redisReply *>(
        redisCommandArgv(server.context, argc, argv, NULL));
    assert_non_null(reply);

    return reply;
}

/* The reply as text, but for its time. */
static const char *call(const char *keys, const char *arguments)
{
    static char text[512];
    redisReply *reply = call_reply(keys, arguments);
    size_t n = 0;

    if (reply->type != REDIS_REPLY_ARRAY) {
        fail_msg("%s", reply->str);
    }

    text[0] = '\0';

    for (size_t i = 1; i < reply->elements; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%lld",
                              i > 1 ? " " : "", reply->element[i]->integer);
    }

    freeReplyObject(reply);

    return text;
}

static long long number(const char *command)
{
    redisReply *reply
        = static_cast<redisReply *>(redisCommand(server.context, command));
    long long value;

    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    value = reply->integer;
    freeReplyObject(reply);

    return value;
}

static void set(const char *key, const char *value)
{
    freeReplyObject(redisCommand(server.context, "SET %s %s", key, value));
}

static void consumes_all_or_none(void **state)
{
    (void)state;
    forget_all();

    /* the second claim's limit is 1: of three, one is granted, of both */
    assert_string_equal(
        call("2 a b", "2 2 3600000 5 0 1 0 2 3600000 1 0 1 0 3 2 1 2"),
        "1 5 0 1 0");
    assert_string_equal(
        call("2 a b", "2 2 3600000 5 0 1 0 2 3600000 1 0 1 0 3 2 1 2"),
        "0 5 1 1 1");

    /* a later ask of the same call sees what an earlier one consumed */
    assert_string_equal(call("2 c c", "1 2 3600000 5 0 3 0 1 1 1 1 1 1"),
                        "1 5 0 0 5 3");
}

static void answers_without_asks(void **state)
{
    (void)state;
    assert_string_equal(call("0", "0"), "");
}

static void limits_of_keys_override(void **state)
{
    static const char *const malformed[]
        = {"banana", "0",      "0r/s",    "-1r/s",
           "1r/w",   "10r/s ", "4194303", "99999999999999999999",
           "1r/",    "r/s",    "1.5r/s"};

    (void)state;
    forget_all();

    /* each more by kScriptOwn */
    set("k:limit", "5r/h");
    assert_string_equal(call("1 k", "1 " HOUR_LIMIT_2 " 9 1 1"),
                        "5 4294967301 0 0");

    set("k:limit", "7");
    assert_string_equal(call("1 k", "1 " HOUR_LIMIT_2 " 9 1 1"),
                        "2 4294967303 0 5");

    set("k:limit", "1r/m");
    assert_string_equal(call("1 k", "1 " HOUR_LIMIT_2 " 1 1 1"),
                        "1 4294967356 0 7");

    /* as large as that of the call */
    set("k:limit", "2");
    assert_string_equal(call("1 k", "1 " HOUR_LIMIT_2 " 1 1 1"),
                        "0 4294967298 0 8");

    set("k:limit", "off");
    assert_string_equal(call("1 k", "1 " HOUR_LIMIT_2 " 9 1 1"), "9 0 0 0");

    for (size_t i = 0; i < LENGTH(malformed); i++) {
        redisReply *reply = static_cast<redisReply *>(
            redisCommand(server.context, "SET k:limit %s", malformed[i]));
        freeReplyObject(reply);
        assert_string_equal(call("1 k", "1 " HOUR_LIMIT_2 " 1 1 1"),
                            "0 -2 0 8");
    }
}

/* A node with units of the key left is told when its state was deleted. */
static void tells_when_it_was_forgotten(void **state)
{
    size_t length;
    const char *script = limit_sliding::forget_script(&length);
    long long ms;
    redisReply *reply;

    (void)state;
    forget_all();

    assert_string_equal(call("1 k", "1 2 3600000 9 0 1 4 2 1 1"), "2 9 0 0");
    set("k:forgotten", "nonsense");
    assert_string_equal(call("1 k", "1 2 3600000 9 0 1 4 2 1 1"), "2 9 2 0");

    /* with what is asked for others, as all-or-nothing requests */
    assert_string_equal(call("2 k l", "2 2 3600000 9 0 1 4 2 3600000 9 0 1 0 "
                                      "1 2 1 2"),
                        "1 9 4 0 9 0");

    reply = static_cast<redisReply *>(
        redisCommand(server.context, "EVAL %b 1 k 5000", script, length));
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    freeReplyObject(reply);
    assert_int_equal(number("EXISTS k"), 0);
    assert_in_range(number("PTTL k:forgotten"), 4000, 5000);

    usleep(20000);
    assert_int_equal(
        sscanf(call("1 k", "1 2 3600000 9 0 1 4 2 1 1"), "2 9 0 %lld", &ms), 1);
    assert_in_range(ms, 20, 4000);

    /* of a bucket of which more units are leased, and of one without a limit */
    set("b:forgotten", "1");
    assert_int_equal(
        sscanf(call("1 b", "1 3 3600000 9 0 1 7 1 2 1 1"), "2 9 0 %lld", &ms),
        1);
    assert_in_range(ms, 1000000, INT64_MAX);
    set("b:limit", "off");
    assert_int_equal(
        sscanf(call("1 b", "1 3 3600000 9 0 1 7 1 2 1 1"), "2 0 0 %lld", &ms),
        1);
}

/* What a zone left before its algorithm or window was changed. */
static void other_states_count_as_none(void **state)
{
    static const char *const kinds[]
        = {"0 3600000 2 1 1 0", "0 60000 2 1 1 0",   "0 3600000 2 3 1 0",
           "1 3600000 2 0 1 0", "2 3600000 2 0 1 0", "2 60000 2 0 1 0",
           "3 3600000 2 0 1 0", "4 3600000 2 1 1 0", "4 60000 2 1 1 0"};

    (void)state;

    for (size_t i = 0; i < LENGTH(kinds); i++) {
        for (size_t j = 0; j < LENGTH(kinds); j++) {
            char arguments[64];

            forget_all();
            snprintf(arguments, sizeof(arguments), "1 %s 1 1 1", kinds[i]);
            call("1 k", arguments);

            snprintf(arguments, sizeof(arguments), "1 %s 3 1 1", kinds[j]);
            assert_int_equal(call("1 k", arguments)[0],
                             /* of the same log a window later, of the same
                                state */
                             kinds[i][0] == '1' && kinds[j][0] == '1' ? '1'
                             : i == j                                 ? '1'
                                                                      : '2');
        }
    }

    forget_all();
    freeReplyObject(redisCommand(server.context, "SADD k x"));
    assert_string_equal(call("1 k", "1 1 3600000 2 0 1 0 2 1 1"),
                        "2 2 0 -1 -1");
}

static void keys_are_small_and_expire(void **state)
{
    long long ms;

    (void)state;
    forget_all();

    call("1 limit_sliding:api:{aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d}",
         "1 0 60000 100 1 1 0 1 1 1");

    assert_in_range(number("MEMORY USAGE limit_sliding:api:"
                           "{aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d}"),
                    1, 150);

    for (Algorithm algorithm : algorithms) {
        char arguments[64];

        snprintf(arguments, sizeof(arguments), "1 %d 60000 100 1 1 0 1 1 1",
                 number_of(algorithm));
        call("1 k", arguments);
        ms = number("PTTL k");
        assert_in_range(ms, 1, 2 * MINUTE_MS);
    }
}

static void rejected_requests_write_nothing(void **state)
{
    char text[64];
    long long dirty;

    (void)state;
    forget_all();

    for (Algorithm algorithm : algorithms) {
        redisReply *reply;

        snprintf(text, sizeof(text), "1 %d 3600000 1 %d 1 0 3 1 1",
                 number_of(algorithm), algorithm == Algorithm::kCounter);
        forget_all();
        call("1 k", text);

        dirty = number("DBSIZE");
        reply
            = static_cast<redisReply *>(redisCommand(server.context, "DUMP k"));
        call("1 k", text);
        assert_int_equal(number("DBSIZE"), dirty);

        {
            redisReply *after = static_cast<redisReply *>(
                redisCommand(server.context, "DUMP k"));

            assert_int_equal(after->len, reply->len);
            assert_memory_equal(after->str, reply->str, reply->len);
            freeReplyObject(after);
        }

        freeReplyObject(reply);
    }
}

/* Where memory is missing nothing is granted, old keys or new. */
static void grants_nothing_without_memory(void **state)
{
    (void)state;
    forget_all();

    for (Algorithm algorithm : algorithms) {
        char text[64];
        redisReply *reply;

        snprintf(text, sizeof(text), "1 %d 500 9 %d 1 0 1 1 1",
                 number_of(algorithm),
                 algorithm == Algorithm::kCounter ? 1
                 : algorithm == Algorithm::kFixed ? 0
                                                  : 5);
        call("1 old", text);

        /* what is over would be removed by now */
        usleep(algorithm == Algorithm::kLog ? 300000 : 0);
        call("1 old", text);
        usleep(algorithm == Algorithm::kLog ? 300000 : 0);

        freeReplyObject(redisCommand(server.context, "CONFIG SET maxmemory 1"));

        reply = call_reply("1 old", text);
        assert_int_equal(reply->type, REDIS_REPLY_ERROR);
        assert_non_null(strstr(reply->str, "OOM"));
        freeReplyObject(reply);

        reply = call_reply("1 new", text);
        assert_int_equal(reply->type, REDIS_REPLY_ERROR);
        freeReplyObject(reply);

        freeReplyObject(redisCommand(server.context, "CONFIG SET maxmemory 0"));
        forget_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decides_as_the_core),
        cmocka_unit_test(given_back_is_never_taken),
        cmocka_unit_test(consumes_all_or_none),
        cmocka_unit_test(answers_without_asks),
        cmocka_unit_test(limits_of_keys_override),
        cmocka_unit_test(tells_when_it_was_forgotten),
        cmocka_unit_test(other_states_count_as_none),
        cmocka_unit_test(keys_are_small_and_expire),
        cmocka_unit_test(rejected_requests_write_nothing),
        cmocka_unit_test(grants_nothing_without_memory),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
