/* Copyright (C) the limit_sliding authors */

/* What was granted and is given back, in a real Redis, is as if never taken. */

#include <stdio.h>

#include "redis_script.hpp"

using namespace limit_sliding;

struct policy_text_t {
    const char *name;
    const char *kind; /* algorithm, window, limit, precision or burst */
    unsigned window_ms;
};

/* The reply to one ask of n units at this time, but for its first number.  The key
 * "one" is of a cluster, the other is not. */
static void take(uint64_t now_ms, const char *key, const policy_text_t *policy, const char *rest,
                 unsigned units, long long numbers[64]) {
    redisReply *reply;
    char text[256];
    const char *sha = script_sha[strcmp(key, "one") == 0 ? 1 : 3];
    const char *argv[24] = {"EVALSHA", sha, "1", key, "1"};
    int argc = 5;

    snprintf(text, sizeof(text), "%s %s %u 1 1 %llu", policy->kind, rest, units,
             (unsigned long long)now_ms);

    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }

    reply = static_cast<redisReply *>(redisCommandArgv(server.context, argc, argv, NULL));
    assert_non_null(reply);

    if (reply->type != REDIS_REPLY_ARRAY) { fail_msg("%s", reply->str); }

    memset(numbers, 0xff, 64 * sizeof(numbers[0]));
    assert_int_equal(reply->element[0]->integer, now_ms);

    for (size_t i = 1; i < reply->elements; i++) {
        numbers[i - 1] = reply->element[i]->integer;
    }

    freeReplyObject(reply);
}

/* The same for both keys, and both are told the same. */
static void take_both(uint64_t now_ms, const policy_text_t *policy, const char *rest,
                      unsigned units, uint64_t step) {
    long long one[64];
    long long other[64];

    take(now_ms, "one", policy, rest, units, one);
    take(now_ms, "other", policy, rest, units, other);

    if (memcmp(one, other, sizeof(one)) != 0) {
        fail_msg("%s, step %llu (at %llu): %lld %lld %lld %lld, and after a "
                 "unit was given back %lld %lld %lld %lld",
                 policy->name, (unsigned long long)step, (unsigned long long)now_ms, one[0], one[1],
                 one[2], one[3], other[0], other[1], other[2], other[3]);
    }
}

/* A third consumes between the two, if that makes no difference to it. */
static void third_takes(uint64_t now_ms, const policy_text_t *policy) {
    long long one[64];
    long long other[64];

    take(now_ms, "one", policy, "1 1", 1, one);
    take(now_ms, "other", policy, "1 1", 1, other);

    if (one[0] == 1 && other[0] == 1) {
        take(now_ms, "one", policy, "1 0", 1, one);
        take(now_ms, "other", policy, "1 0", 1, other);
    }
}

static unsigned run_given_back(const policy_text_t *policy, uint64_t seed) {
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
        snprintf(rest, sizeof(rest), "%u %d", cost, random_below(&random, 8) == 0);
        take_both(now_ms, policy, rest, 1 + before, step);

        if (random_below(&random, 2)) { continue; }

        snprintf(rest, sizeof(rest), "%u 0", cost);
        take(now_ms, "other", policy, rest, 1, taken);

        if (taken[0] == 0) { continue; }

        snprintf(rest, sizeof(rest), "%u 2 %llu %lld %lld 0", cost, (unsigned long long)now_ms,
                 taken[2], taken[3]);

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

static void given_back_is_never_taken(void **state) {
    static const policy_text_t policies[] = {
        {"counter", "0 1000 5 1", 1000},
        {"counter of 36 parts", "0 60000 7 0", 60000},
        {"counter of 28 parts", "0 1000 9 0", 1000},
        {"counter of 5 parts", "0 1000 100 0", 1000},
        {"strict counter", "0 1000 100 64", 1000},
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_back_is_never_taken),
    };

    return cmocka_run_group_tests_name("redis give back", tests, start, stop);
}
