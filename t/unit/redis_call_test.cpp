/* Copyright (C) the limit_sliding authors */

/* Calls of the script that were worked out by hand, by Redis's own clock. */

#include <stdio.h>
#include <unistd.h>

#include "core/policy/shape.hpp"
#include "redis_script.hpp"
#include "replies.hpp"

using namespace limit_sliding;

#define HOUR_LIMIT_2 "2 3600000 2 0 1 0"

static char script_of_all[41];

static int start_all(void **state) {
    return start(state) || !redis_server_load(&server, 0x1f, script_of_all, true);
}

/* The script of all algorithms, for these states. */
static redisReply *call_reply(const char *states, const char *arguments) {
    char names[256];
    char command[2048];
    char count[16];
    const char *argv[64] = {"EVALSHA", script_of_all, count};
    int argc = 3;
    redisReply *reply;

    snprintf(names, sizeof(names), "%s", states);
    for (char *state = strtok(names, " "); state; state = strtok(NULL, " ")) {
        argv[argc++] = state;
    }

    snprintf(count, sizeof(count), "%d", argc - 3);
    snprintf(command, sizeof(command), "%s", arguments);

    for (char *word = strtok(command, " "); word; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }

    reply = static_cast<redisReply *>(redisCommandArgv(server.context, argc, argv, NULL));
    assert_non_null(reply);

    return reply;
}

/* The reply as text, but for its time. */
static const char *call(const char *states, const char *arguments) {
    return numbers_of(call_reply(states, arguments));
}

static long long number(const char *command) {
    redisReply *reply = static_cast<redisReply *>(redisCommand(server.context, command));
    long long value;

    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    value = reply->integer;
    freeReplyObject(reply);

    return value;
}

/* A command about the state of the key "k" with a precision of 1, valid until the next call. */
static const char *about(const char *command, Algorithm algorithm, uint64_t window_ms) {
    static char text[64];
    Policy policy = {};
    policy.algorithm = algorithm;
    policy.window_ms = window_ms;
    policy.precision = algorithm == Algorithm::kCounter;
    const Shape shape(policy);
    snprintf(text, sizeof(text), "%s {k}:%.*s", command, static_cast<int>(shape.text().size()),
             shape.text().data());
    return text;
}

static void set(const char *key, const char *value) {
    freeReplyObject(redisCommand(server.context, "SET %s %s", key, value));
}

static void consumes_all_or_none(void **state) {
    (void)state;
    forget_all();

    /* the second claim's limit is 1: of three, one is granted, of both */
    assert_string_equal(call("a b", "2 2 3600000 5 0 1 0 2 3600000 1 0 1 0 3 2 1 2"), "1 5 0 1 0");
    assert_string_equal(call("a b", "2 2 3600000 5 0 1 0 2 3600000 1 0 1 0 3 2 1 2"), "0 5 1 1 1");

    /* a later ask of the same call sees what an earlier one consumed */
    assert_string_equal(call("c c", "1 2 3600000 5 0 3 0 1 1 1 1 1 1"), "1 5 0 0 5 3");
}

/* Every claim says how many values it has, whatever the keys' overrides. */
static void counters_tell_their_parts(void **state) {
    static const char *const limits[] = {"3", "10", "100", "16384", "off", "1000000000000000"};
    static const unsigned parts[] = {40, 28, 5, 1, 0, 1};
    redisReply *reply;
    size_t at = 2;

    (void)state;
    forget_all();

    for (size_t i = 0; i < LENGTH(limits); i++) {
        char key[16];

        snprintf(key, sizeof(key), "{k%zu}:limit", i);
        set(key, limits[i]);
    }

    /* twice, as the second pass finds what the first one has not written */
    for (unsigned i = 0; i < 2; i++) {
        reply = call_reply("k0 k1 k2 k3 k4 k5", "1 0 3600000 9 0 1 0 1 6 1 1 1 1 1 1");
        assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
        assert_int_equal(reply->element[1]->integer, 1);
        at = 2;

        for (unsigned n : parts) {
            assert_true(reply->element[at]->integer > kScriptOwn || n == 0);
            assert_int_equal(reply->element[at + 1]->integer, n);
            assert_int_equal(reply->element[at + 4 + n]->integer, n == 0 ? 0 : i);
            at += 5 + n;
        }

        assert_int_equal(reply->elements, at);
        freeReplyObject(reply);
    }
}

static void limits_of_keys_override(void **state) {
    static const char *const malformed[] = {"banana",
                                            "00",
                                            "0r/s",
                                            "0/1h",
                                            "5/99ms",
                                            "5/31d",
                                            "5/months",
                                            "5/1m1h",
                                            "5/",
                                            "5r/s/1h",
                                            "-1r/s",
                                            "1r/w",
                                            "10r/s ",
                                            "1000000000000001",
                                            "99999999999999999999",
                                            "1r/",
                                            "r/s",
                                            "1.5r/s"};

    (void)state;
    forget_all();

    /* each more by kScriptOwn */
    set("{k}:limit", "5r/h");
    assert_string_equal(call("k", "1 " HOUR_LIMIT_2 " 9 1 1"), "5 4503599627370501 0");

    set("{k}:limit", "7");
    assert_string_equal(call("k", "1 " HOUR_LIMIT_2 " 9 1 1"), "2 4503599627370503 5");

    set("{k}:limit", "1r/m");
    assert_string_equal(call("k", "1 " HOUR_LIMIT_2 " 1 1 1"), "1 4503599627370556 7");

    /* as large as that of the call */
    set("{k}:limit", "2");
    assert_string_equal(call("k", "1 " HOUR_LIMIT_2 " 1 1 1"), "0 4503599627370498 8");

    set("{k}:limit", "off");
    assert_string_equal(call("k", "1 " HOUR_LIMIT_2 " 9 1 1"), "9 0 0");

    /* blocked */
    set("{k}:limit", "0");
    assert_string_equal(call("k", "1 " HOUR_LIMIT_2 " 9 1 1"), "0 4503599627370496 0");

    for (size_t i = 0; i < LENGTH(malformed); i++) {
        redisReply *reply = static_cast<redisReply *>(
            redisCommand(server.context, "SET {k}:limit %s", malformed[i]));
        freeReplyObject(reply);
        assert_string_equal(call("k", "1 " HOUR_LIMIT_2 " 1 1 1"), "0 -2 8");
    }
}

/* A node with units of the key left is told when its state was deleted. */
static void tells_when_it_was_forgotten(void **state) {
    std::string_view script = limit_sliding::forget_script();
    long long ms;
    redisReply *reply;

    (void)state;
    forget_all();

    assert_string_equal(call("k", "1 2 3600000 9 0 1 8 2 1 1"), "2 9 0 0");
    set("{k}:f3600s:forgotten", "nonsense");
    assert_string_equal(call("k", "1 2 3600000 9 0 1 8 2 1 1"), "2 9 2 0");

    /* with what is asked for others, as all-or-nothing requests */
    assert_string_equal(call("k l", "2 2 3600000 9 0 1 8 2 3600000 9 0 1 0 "
                                    "1 2 1 2"),
                        "1 9 4 0 9 0");

    reply = static_cast<redisReply *>(redisCommand(
        server.context, "EVAL %b 1 {k}:f3600s 5000 :forgotten", script.data(), script.size()));
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    freeReplyObject(reply);
    assert_int_equal(number("EXISTS {k}:f3600s"), 0);
    assert_in_range(number("PTTL {k}:f3600s:forgotten"), 4000, 5000);

    usleep(20000);
    assert_int_equal(sscanf(call("k", "1 2 3600000 9 0 1 8 2 1 1"), "2 9 0 %lld", &ms), 1);
    assert_in_range(ms, 20, 4000);

    /* of a bucket of which more units are leased, and of one without a limit */
    set("{b}:t3600s:forgotten", "1");
    assert_int_equal(sscanf(call("b", "1 3 3600000 9 0 1 11 1 2 1 1"), "2 9 0 0 %lld", &ms), 1);
    assert_in_range(ms, 1000000, INT64_MAX);
    set("{b}:limit", "off");
    assert_int_equal(sscanf(call("b", "1 3 3600000 9 0 1 11 1 2 1 1"), "2 0 0 0 %lld", &ms), 1);
}

/* Zones with another algorithm, window or precision count apart, and find their counts again. */
static void other_shapes_count_apart(void **state) {
    static const char *const kinds[]
        = {"0 3600000 2 1 1", "0 60000 2 1 1",   "0 3600000 2 3 1",  "0 3600000 2 0 1",
           "0 60000 2 0 1",   "0 60500 2 0 1",   "1 3600000 2 0 1",  "1 60000 2 0 1",
           "2 3600000 2 0 1", "2 60000 2 0 1",   "2 86400000 2 0 1", "2 86400000 2 1 1",
           "3 3600000 2 0 1", "4 3600000 2 1 1", "4 60000 2 1 1"};

    (void)state;
    forget_all();

    for (const char *units : {"1", "5"}) {
        for (const char *kind : kinds) {
            char arguments[64];
            snprintf(arguments, sizeof(arguments), "1 %s 0 %s 1 1", kind, units);
            assert_int_equal(call("k", arguments)[0], '1');
        }
    }

    assert_int_equal(number("DBSIZE"), LENGTH(kinds));
}

/* A state of another version of the module is not decided, and stays as it is. */
static void foreign_states_stay(void **state) {
    static const struct {
        const char *name;
        const char *kind;
    } foreign[] = {{"{k}:c60s", "0 60000 2 0 1"}, {"{k}:l60s", "1 60000 2 0 1"},
                   {"{k}:f60s", "2 60000 2 0 1"}, {"{k}:fday", "2 86400000 2 1 1"},
                   {"{k}:t60s", "3 60000 2 0 1"}, {"{k}:b60s", "4 60000 2 1 1"}};

    (void)state;
    forget_all();

    for (const auto &one : foreign) {
        char arguments[64];
        freeReplyObject(
            redisCommand(server.context, "SET %s %b", one.name, "\0\2state", size_t{7}));
        for (const char *purpose : {"0 1", "1 1", "0 3"}) {
            snprintf(arguments, sizeof(arguments), "1 %s %s 1 1", one.kind, purpose);
            assert_memory_equal(call("k", arguments), "0 -3000 0", 9);
        }

        /* nor are the other claims of a request recorded */
        snprintf(arguments, sizeof(arguments), "2 %s 0 2 3600000 9 0 1 0 1 2 1 2", one.kind);
        assert_memory_equal(call("k l", arguments), "0 -3000 0", 9);
        assert_int_equal(number("EXISTS {l}:f3600s"), 0);

        auto *reply = static_cast<redisReply *>(redisCommand(server.context, "GET %s", one.name));
        assert_int_equal(reply->len, 7);
        assert_memory_equal(reply->str, "\0\2state", 7);
        freeReplyObject(reply);
    }

    /* the window of a key's override as well */
    set("{k}:limit", "2/1m");
    assert_memory_equal(call("k", "1 0 3600000 2 0 1 0 1 1 1"), "0 -3000 0", 9);

    /* what is no string, no version of the module has written */
    freeReplyObject(redisCommand(server.context, "SADD {s}:l60s x"));
    assert_string_equal(call("s", "1 1 60000 2 0 1 0 2 1 1"), "2 2 0 -1 -1");
}

static void keys_are_small_and_expire(void **state) {
    long long ms;

    (void)state;
    forget_all();

    call("limit_sliding:api:qvTGHdzF6KLavt4PO0gs2A", "1 0 60000 100 1 1 0 1 1 1");

    assert_in_range(number("MEMORY USAGE {limit_sliding:api:qvTGHdzF6KLavt4PO0gs2A}:c60s.1"), 1,
                    140);

    for (unsigned long long limit : {3, 7, 15, 21, 31, 63, 127, 255, 2047, 16383, 16777215}) {
        char arguments[64];

        forget_all();
        snprintf(arguments, sizeof(arguments), "1 0 86400000 %llu 0 1 0 1 1 1", limit);

        for (unsigned i = 0; i < 6; i++) {
            call("limit_sliding:api:qvTGHdzF6KLavt4PO0gs2A", arguments);
        }

        assert_in_range(number("MEMORY USAGE {limit_sliding:api:qvTGHdzF6KLavt4PO0gs2A}:c86400s"),
                        1, 140);
    }

    for (Algorithm algorithm : algorithms) {
        char arguments[64];

        snprintf(arguments, sizeof(arguments), "1 %d 60000 100 %d 1 0 1 1 1", number_of(algorithm),
                 algorithm != Algorithm::kFixed);
        call("k", arguments);
        ms = number(about("PTTL", algorithm, 60000));
        assert_in_range(ms, 1, 2 * MINUTE_MS);
    }
}

static void rejected_requests_write_nothing(void **state) {
    char text[64];
    long long dirty;

    (void)state;
    forget_all();

    for (Algorithm algorithm : algorithms) {
        redisReply *reply;
        const char *dump = about("DUMP", algorithm, 3600000);

        snprintf(text, sizeof(text), "1 %d 3600000 1 %d 1 0 3 1 1", number_of(algorithm),
                 algorithm == Algorithm::kCounter);
        forget_all();
        call("k", text);

        dirty = number("DBSIZE");
        reply = static_cast<redisReply *>(redisCommand(server.context, dump));
        call("k", text);
        assert_int_equal(number("DBSIZE"), dirty);

        {
            redisReply *after = static_cast<redisReply *>(redisCommand(server.context, dump));

            assert_int_equal(after->len, reply->len);
            assert_memory_equal(after->str, reply->str, reply->len);
            freeReplyObject(after);
        }

        freeReplyObject(reply);
    }
}

/* Where memory is missing nothing is granted, old keys or new. */
static void grants_nothing_without_memory(void **state) {
    (void)state;
    forget_all();

    for (Algorithm algorithm : algorithms) {
        char text[64];
        redisReply *reply;

        snprintf(text, sizeof(text), "1 %d 500 9 %d 1 0 1 1 1", number_of(algorithm),
                 algorithm == Algorithm::kCounter ? 1
                 : algorithm == Algorithm::kFixed ? 0
                                                  : 5);
        call("old", text);

        /* what is over would be removed by now */
        usleep(algorithm == Algorithm::kLog ? 300000 : 0);
        call("old", text);
        usleep(algorithm == Algorithm::kLog ? 300000 : 0);

        freeReplyObject(redisCommand(server.context, "CONFIG SET maxmemory 1"));

        reply = call_reply("old", text);
        assert_int_equal(reply->type, REDIS_REPLY_ERROR);
        assert_non_null(strstr(reply->str, "OOM"));
        freeReplyObject(reply);

        reply = call_reply("new", text);
        assert_int_equal(reply->type, REDIS_REPLY_ERROR);
        freeReplyObject(reply);

        freeReplyObject(redisCommand(server.context, "CONFIG SET maxmemory 0"));
        forget_all();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(consumes_all_or_none),
        cmocka_unit_test(counters_tell_their_parts),
        cmocka_unit_test(limits_of_keys_override),
        cmocka_unit_test(tells_when_it_was_forgotten),
        cmocka_unit_test(other_shapes_count_apart),
        cmocka_unit_test(foreign_states_stay),
        cmocka_unit_test(keys_are_small_and_expire),
        cmocka_unit_test(rejected_requests_write_nothing),
        cmocka_unit_test(grants_nothing_without_memory),
    };

    return cmocka_run_group_tests_name("redis call", tests, start_all, stop);
}
