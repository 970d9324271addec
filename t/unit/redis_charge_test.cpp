/* Copyright (C) the limit_sliding authors */

/* Units that are charged whatever the limit says, in a real Redis. */

#include <stdio.h>

#include "redis_script.hpp"

using namespace limit_sliding;

#define START_MS 1700000000000ull

/* The reply to keys, kinds and asks, but for its time. */
static const char *call(uint64_t now_ms, const char *arguments) {
    static char text[512];
    char command[512];
    redisReply *reply;
    size_t n = 0;

    snprintf(command, sizeof(command), "EVALSHA %s %s %llu", script_sha[2], arguments,
             (unsigned long long)now_ms);
    reply = static_cast<redisReply *>(redisCommand(server.context, command));
    assert_non_null(reply);

    if (reply->type != REDIS_REPLY_ARRAY) { fail_msg("%s", reply->str); }

    for (size_t i = 1; i < reply->elements; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%lld", i > 1 ? " " : "",
                              reply->element[i]->integer);
    }

    freeReplyObject(reply);

    return text;
}

/* Beside other asks, and as a part of one that is not granted. */
static void charges_whatever_else_is_asked(void **state) {
    (void)state;
    forget_all();

    assert_string_equal(call(START_MS, "1 k 1 2 60000 5 0 3 4 1 1 1"), "1 5 0");
    assert_string_equal(call(START_MS, "1 k 1 2 60000 5 0 1 1 1 1 1"), "1 5 3");

    /* a request of 3, rejected; a charge of 1; and a request of 1 */
    assert_string_equal(call(START_MS, "3 k k k 3 2 60000 5 0 3 0 2 60000 5 0 1 4 2 60000 5 0 1 0"
                                       " 1 1 1 1 1 2 1 1 3"),
                        "0 5 3 1 5 0 1 5 4");

    /* all or nothing, but for the charge, first and last */
    assert_string_equal(call(START_MS, "3 l k l 2 2 60000 5 0 1 4 2 60000 5 0 1 0 1 3 1 2 1"),
                        "0 5 0 5 5 5 0");
    assert_string_equal(call(START_MS, "1 l 1 2 60000 5 0 1 1 1 1 1"), "1 5 2");

    /* a key without a limit */
    freeReplyObject(redisCommand(server.context, "SET k:limit off"));
    assert_string_equal(call(START_MS, "1 k 1 2 60000 5 0 3 4 1 1 1"), "1 0 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(charges_whatever_else_is_asked),
    };

    return cmocka_run_group_tests_name("redis charge", tests, start, stop);
}
