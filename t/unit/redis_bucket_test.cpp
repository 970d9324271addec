/* Copyright (C) the limit_sliding authors */

/* Buckets of the script in a real Redis, where numbers and limits are large. */

#include <stdio.h>

#include "redis/protocol/scripts.hpp"
#include "redis_server.hpp"
#include "replies.hpp"
#include "support.hpp"

using namespace limit_sliding;

#define START_MS 1700000000000ull

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

static void forget(void) { freeReplyObject(redisCommand(server.context, "FLUSHALL")); }

static void set_limit(const char *value) {
    freeReplyObject(redisCommand(server.context, "SET k:limit %s", value));
}

/* One kind and what follows it, for the key k; the reply but for its time. */
static const char *call(const char *arguments, uint64_t now_ms) {
    char command[256];

    snprintf(command, sizeof(command), "EVALSHA %s 1 k 1 %s %llu", script_sha, arguments,
             (unsigned long long)now_ms);
    return numbers_of(static_cast<redisReply *>(redisCommand(server.context, command)));
}

/* When the state expires, by the clock of calls. */
static uint64_t until_ms(void) {
    redisReply *reply = static_cast<redisReply *>(redisCommand(server.context, "GET until:k"));
    uint64_t ms;

    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_STRING);
    ms = strtoull(reply->str, NULL, 10);
    freeReplyObject(reply);

    return ms;
}

/* The whole of a bare number, whatever the window; and of any rate. */
static void limits_of_keys_are_exact(void **state) {
    static const struct {
        const char *own;
        const char *kind;
        const char *reply;
    } calls[] = {
        /* a limit of the key's own is told as 2^52 more */
        {"4194301", "3 2385765333 9 0 1 0 1 1 1", "1 4503599631564797 0 0"},
        {"4194302", "3 2592000000 9 0 1 0 1 1 1", "1 4503599631564798 0 0"},
        {"4194301", "2 2385765333 9 0 1 0 1 1 1", "1 4503599631564797 0"},
        {"1000000000000000", "2 2385765333 9 0 1 0 1 1 1", "1 5503599627370496 0"},
        {"1000000000000001", "2 2385765333 9 0 1 0 1 1 1", "1 -9 0"},
        {"4194302", "1 1000 9 0 1 0 1 1 1", "1 4503599631564798 0 -1 -1"},
        {"4194303", "1 1000 9 0 1 0 1 1 1", "1 -9 0 -1 -1"},
        /* as much as floor(rate x window) with all digits */
        {"999999999999999999r/d", "2 100 9 0 1 0 1 1 1", "1 4504757034777903 0"},
        {"999999999999999999r/m", "2 100 9 0 1 0 1 1 1", "1 -9 0"},
        {"33333333333333r/d", "2 2592000000 9 0 1 0 1 1 1", "1 5503599627370486 0"},
        {"33333333333334r/d", "2 2592000000 9 0 1 0 1 1 1", "1 -9 0"},
        {"139810r/d", "2 2592000000 9 0 1 0 1 1 1", "1 4503599631564796 0"},
    };

    (void)state;

    for (size_t i = 0; i < LENGTH(calls); i++) {
        forget();
        set_limit(calls[i].own);
        assert_string_equal(call(calls[i].kind, START_MS), calls[i].reply);
    }
}

/* Whose limit x window takes more than 53 bits. */
static void large_buckets_hold_their_capacity(void **state) {
    static const uint32_t limits[] = {LIMIT_MAX, LIMIT_MAX - 1, 4194299, 4000001, 3500001};

    (void)state;

    for (size_t i = 0; i < LENGTH(limits); i++) {
        for (uint64_t w = kWindowMaxMs; w > 2591999990; w--) {
            for (unsigned used = 0; used < 3; used++) {
                char arguments[64];
                char reply[64];

                forget();

                if (used > 0) {
                    snprintf(arguments, sizeof(arguments), "3 %llu %u 0 1 0 %u 1 1",
                             (unsigned long long)w, limits[i], used);
                    call(arguments, START_MS);
                }

                snprintf(arguments, sizeof(arguments), "3 %llu %u 0 %u 0 1 1 1",
                         (unsigned long long)w, limits[i], limits[i] - used);
                snprintf(reply, sizeof(reply), "1 %u ", limits[i]);
                assert_memory_equal(call(arguments, START_MS), reply, strlen(reply));
            }
        }
    }
}

/* A lower limit has to wait longer than the one that made the state. */
static void states_outlast_every_wait(void **state) {
    (void)state;
    forget();

    /* 100 of a burst of 100 at 100 a second, then 50 at 1 and at 2 */
    assert_string_equal(call("3 1000 100 100 1 0 100 1 1", START_MS), "100 100 0 0");
    assert_int_equal(until_ms(), START_MS + 2000);

    assert_string_equal(call("3 1000 1 100 50 0 1 1 1", START_MS), "0 1 100 0");
    assert_int_equal(until_ms(), START_MS + 100000);

    assert_string_equal(call("3 1000 2 100 50 0 1 1 1", START_MS), "0 2 100 0");
    assert_int_equal(until_ms(), START_MS + 100000);

    /* what is recorded later does not make it forget sooner */
    assert_string_equal(call("3 1000 100 100 1 0 1 1 1", START_MS + 50), "1 100 95 0");
    assert_int_equal(until_ms(), START_MS + 50 + 96000);

    /* as told, and not a millisecond before */
    assert_string_equal(call("3 1000 1 100 50 0 1 1 1", START_MS + 46049), "0 1 50 1");
    assert_string_equal(call("3 1000 1 100 50 0 1 1 1", START_MS + 46050), "1 1 50 0");
}

/* As in bucket_test.c: 5 a second pass under 10 from the first one on. */
static void a_lowered_limit_starves_nobody(void **state) {
    uint64_t now_ms = START_MS;

    (void)state;
    forget();

    assert_string_equal(call("3 1000 1000 0 1 0 1000 1 1", now_ms), "1000 1000 0 0");

    for (unsigned i = 0; i < 60; i++) {
        now_ms += 1000;

        for (unsigned j = 0; j < 5; j++) {
            assert_int_equal(call("3 1000 10 0 1 0 1 1 1", now_ms)[0], '1');
        }
    }

    /* the last window has refilled all of it, and no more */
    for (unsigned j = 5; j < 10; j++) {
        assert_int_equal(call("3 1000 10 0 1 0 1 1 1", now_ms)[0], '1');
    }

    assert_int_equal(call("3 1000 10 0 1 0 1 1 1", now_ms)[0], '0');
}

/* What it admits is not taken for what the higher limit had admitted. */
static void a_lower_limit_between_loses_no_count(void **state) {
    (void)state;
    forget();

    call("3 1000 1000 0 1 0 1000 1 1", START_MS);
    assert_string_equal(call("3 1000 10 0 1 0 1 1 1", START_MS + 100), "1 10 9 0");
    assert_string_equal(call("3 1000 1000 0 1 0 1000 1 1", START_MS + 200), "100 1000 900 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_of_keys_are_exact),
        cmocka_unit_test(large_buckets_hold_their_capacity),
        cmocka_unit_test(states_outlast_every_wait),
        cmocka_unit_test(a_lowered_limit_starves_nobody),
        cmocka_unit_test(a_lower_limit_between_loses_no_count),
    };

    return cmocka_run_group_tests_name("redis_bucket", tests, start, stop);
}
