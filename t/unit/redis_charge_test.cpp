/* Copyright (C) the limit_sliding authors */

/* Units that are charged whatever the limit says, in a real Redis. */

#include <stdio.h>

#include "redis/logic/remote.hpp"
#include "redis_script.hpp"
#include "replies.hpp"

using namespace limit_sliding;

#define START_MS 1700000000000ull

/* The reply to keys, kinds and asks, but for its time. */
static const char *call(uint64_t now_ms, const char *arguments) {
    char command[512];

    snprintf(command, sizeof(command), "EVALSHA %s %s %llu", script_sha[2], arguments,
             (unsigned long long)now_ms);
    return numbers_of(static_cast<redisReply *>(redisCommand(server.context, command)));
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

/* What the window of a minute tells a request of 1 under a limit. */
static Verdict look(uint64_t now_ms, const char *algorithm, uint64_t limit, Policy policy) {
    char arguments[96];
    int64_t values[8] = {};
    RemoteState remote = {now_ms, limit, values};

    snprintf(arguments, sizeof(arguments), "1 k 1 %s 60000 %llu 0 1 1 1 1 1", algorithm,
             (unsigned long long)limit);

    const char *text = call(now_ms, arguments);
    size_t n = 0;

    for (const char *word = text; word != NULL; word = strchr(word + 1, ' '), n++) {
        if (n > 1) { values[n - 2] = strtoll(word, NULL, 10); }
    }

    assert_int_equal(n - 2, remote_values(policy, values[0]));
    assert_true(are_remote_values(policy, values));

    return remote.describe(policy, 1, 0, 0, 1);
}

/* A debt of 25 under a limit of 10: the windows to come are full, and the third
 * one has 5. */
static void windows_to_come_are_used_up(void **state) {
    Policy policy = {60000, Algorithm::kFixed, WhenFull::kEvict, 0, 0};
    uint64_t begins_ms = START_MS - START_MS % 60000;
    uint64_t now_ms = begins_ms + 1000;
    Verdict v;

    (void)state;
    forget_all();

    assert_string_equal(call(now_ms, "1 k 1 2 60000 10 0 4 0 1 1 1"), "1 10 0");
    assert_string_equal(call(now_ms, "1 k 1 2 60000 10 0 31 4 1 1 1"), "1 10 0");

    v = look(now_ms, "2", 10, policy);
    assert_int_equal(v.remaining, 0);
    assert_int_equal(v.excess, 26000);
    assert_int_equal(v.retry_after_ms, 3 * 60000 - 1000);
    assert_int_equal(v.reset_ms, 3 * 60000 - 1000);

    /* under a higher limit a window less has to pass */
    v = look(now_ms, "2", 30, policy);
    assert_int_equal(v.remaining, 0);
    assert_int_equal(v.retry_after_ms, 60000 - 1000);
    v = look(now_ms, "2", 40, policy);
    assert_int_equal(v.remaining, 5);
    assert_int_equal(v.reset_ms, 60000 - 1000);

    v = look(begins_ms + 2 * 60000, "2", 10, policy);
    assert_int_equal(v.excess, 6000);
    assert_int_equal(v.retry_after_ms, 60000);
    v = look(begins_ms + 3 * 60000, "2", 10, policy);
    assert_int_equal(v.remaining, 5);

    /* 20 less, by a claim of that window, and 6 more */
    assert_string_equal(call(now_ms, "1 k 1 2 60000 10 0 20 2 1700000001000 0 0 0 1 1 1"),
                        "1 10 0");
    v = look(now_ms, "2", 10, policy);
    assert_int_equal(v.excess, 6000);
    assert_string_equal(call(now_ms, "1 k 1 2 60000 10 0 6 2 1700000001000 0 0 0 1 1 1"), "1 10 0");
    v = look(now_ms, "2", 10, policy);
    assert_int_equal(v.remaining, 1);

    /* an admission under a higher limit makes all of it use of the present window */
    assert_string_equal(call(now_ms, "1 k 1 2 60000 10 0 31 4 1 1 1"), "1 10 0");
    assert_string_equal(call(now_ms, "1 k 1 2 60000 41 0 1 0 1 1 1"), "1 41 -1 28333336 10 10");
    assert_string_equal(call(now_ms, "1 k 1 2 60000 41 0 1 0 1 1 1"), "0 41 41");
    v = look(begins_ms + 60000, "2", 10, policy);
    assert_int_equal(v.remaining, 10);
}

/* A bucket of 60 that loses one a second has used 100. */
static void buckets_pay_at_their_pace(void **state) {
    Policy policy = {60000, Algorithm::kTokenBucket, WhenFull::kEvict, 0, 0};
    Verdict v;

    (void)state;
    forget_all();

    assert_string_equal(call(START_MS, "1 k 1 3 60000 60 0 100 4 1 1 1"), "1 60 0");

    v = look(START_MS, "3", 60, policy);
    assert_int_equal(v.remaining, 0);
    assert_int_equal(v.excess, 41000);
    assert_int_equal(v.retry_after_ms, 41000);

    /* what a higher limit has room for is used at its pace then */
    assert_string_equal(call(START_MS, "1 k 1 3 60000 600 0 500 1 1 1 1"), "1 600 -1 60 100 0");
    assert_string_equal(call(START_MS, "1 k 1 3 60000 600 0 501 0 1 1 1"), "0 600 -1 60 100 0");

    /* 30 less, by a claim of now; a lower limit waits until the debt is paid, and
     * then at its own pace */
    assert_string_equal(call(START_MS, "1 k 1 3 60000 60 0 30 2 1700000000000 0 0 0 1 1 1"),
                        "1 60 0");
    v = look(START_MS, "3", 60, policy);
    assert_int_equal(v.retry_after_ms, 11000);
    v = look(START_MS, "3", 6, policy);
    assert_int_equal(v.retry_after_ms, 20000);
    assert_int_equal(call(START_MS + 19999, "1 k 1 3 60000 6 0 1 0 1 1 1")[0], '0');
    assert_int_equal(call(START_MS + 20000, "1 k 1 3 60000 6 0 1 1 1 1 1")[0], '1');

    /* once it is paid, and all that is left is given back */
    assert_string_equal(call(START_MS + 20000, "1 k 1 3 60000 60 0 1 1 1 1 1"), "1 60 50 0");
    assert_string_equal(call(START_MS + 20000, "1 k 1 3 60000 60 0 11 4 1 1 1"), "1 60 0");
    assert_string_equal(call(START_MS + 20000, "1 k 1 3 60000 60 0 70 2 1700000020000 0 0 0 1 1 1"),
                        "1 60 0");
    assert_string_equal(call(START_MS + 20000, "1 k 1 3 60000 60 0 1 1 1 1 1"), "1 60 0 0");

    /* one in a queue of one, two seconds later, lasts for a window under any limit */
    forget_all();
    assert_string_equal(call(START_MS, "1 k 1 4 60000 60 0 3 4 1 1 1"), "1 60 0");
    assert_int_equal(call(START_MS + 61999, "1 k 1 4 60000 1 0 1 0 1 1 1")[0], '0');
}

/* No more than a thousand windows, and than numbers hold. */
static void debts_have_a_bound(void **state) {
    static const char *const kinds[] = {"0 60000 3 0", "0 60000 3 7", "2 60000 3 0",
                                        "3 60000 3 0", "4 60000 3 2", "1 60000 3 0"};

    (void)state;

    for (const char *kind : kinds) {
        char arguments[128];

        forget_all();
        snprintf(arguments, sizeof(arguments), "1 k 1 %s 9007199254740992 4 1 1 1", kind);
        assert_string_equal(call(START_MS, arguments), "1 3 9007199254737989");
        assert_string_equal(call(START_MS, arguments), "1 3 9007199254740992");

        /* the state outlasts that, and no key is kept for ever */
        snprintf(arguments, sizeof(arguments), "1 k 1 %s 1 0 1 1 1", kind);
        assert_int_equal(call(START_MS + 999 * 60000ull, arguments)[0], '0');
        assert_int_equal(call(START_MS + 1002 * 60000ull, arguments)[0], '1');

        /* of a higher limit */
        forget_all();
        snprintf(arguments, sizeof(arguments), "1 k 1 %c 60000 1000000000000000 0 1 4 1 1 1",
                 kind[0] == '1' ? '2' : kind[0]);
        assert_string_equal(call(START_MS, arguments), "1 1000000000000000 0");
    }

    /* a log holds each unit */
    forget_all();
    assert_string_equal(call(START_MS, "1 k 1 1 60000 10000 0 1100000 4 1 1 1"), "1 10000 90000");
    freeReplyObject(redisCommand(server.context, "DEL k"));
}

/* A log by its rule: the times of its events, in order. */
struct log_rule_t {
    uint64_t time[40000];
    size_t n;
};

static void log_forget(log_rule_t *rule, uint64_t now_ms) {
    size_t over = 0;

    while (over < rule->n && rule->time[over] + 60000 <= now_ms) {
        over++;
    }

    rule->n -= over;
    memmove(rule->time, rule->time + over, rule->n * sizeof(rule->time[0]));
}

static void log_add(log_rule_t *rule, uint64_t now_ms, uint64_t limit, uint64_t cost) {
    for (size_t i = 0; rule->n + cost <= limit && i < rule->n; i++) {
        if (rule->time[i] > now_ms) { rule->time[i] = now_ms; }
    }

    for (uint64_t i = 0; i < cost; i++) {
        uint64_t time = rule->n < limit ? now_ms : rule->time[rule->n - limit] + 60000;
        uint64_t newest = rule->n > 0 ? rule->time[rule->n - 1] : 0;

        rule->time[rule->n++] = time > newest ? time : newest;
    }
}

/* What is owed goes first, the last of it, and then units of that time. */
static void log_take(log_rule_t *rule, uint64_t now_ms, uint64_t taken_ms, uint64_t cost) {
    while (cost > 0 && rule->n > 0 && rule->time[rule->n - 1] > now_ms) {
        rule->n--;
        cost--;
    }

    for (size_t i = 0; i < rule->n && cost > 0;) {
        if (rule->time[i] == taken_ms) {
            memmove(rule->time + i, rule->time + i + 1, (--rule->n - i) * sizeof(rule->time[0]));
            cost--;
        } else {
            i++;
        }
    }
}

/* It is told when a request has room, to the ms, and what of the limit is left. */
static void check_log(const log_rule_t *rule, uint64_t now_ms, uint64_t limit) {
    Policy policy = {60000, Algorithm::kLog, WhenFull::kEvict, 0, 0};
    Verdict v = look(now_ms, "1", limit, policy);

    assert_int_equal(v.remaining, rule->n < limit ? limit - rule->n : 0);
    assert_int_equal(v.retry_after_ms,
                     rule->n < limit ? 0 : rule->time[rule->n - limit] + 60000 - now_ms);
}

static void a_log_has_events_to_come(void **state) {
    static const uint64_t limits[] = {1, 7, 1500};
    static log_rule_t rule;

    (void)state;

    for (uint64_t seed = 1; seed <= 30; seed++) {
        uint64_t random = seed;
        uint64_t limit = limits[seed % LENGTH(limits)];
        uint64_t now_ms = START_MS;
        uint64_t taken_ms = now_ms;
        unsigned admitted = 0;

        forget_all();
        rule.n = 0;

        for (unsigned i = 0; i < 150; i++) {
            uint64_t in_force
                = random_below(&random, 6) ? limit : 1 + random_below(&random, 4 * limit);
            uint64_t cost = 1 + random_below(&random, in_force);
            unsigned purpose = (unsigned)random_below(&random, 10);
            char arguments[128];
            char rest[48] = "0 1 1 1";

            now_ms += random_below(&random, 3) ? random_below(&random, 30000)
                                               : random_below(&random, 200000);
            log_forget(&rule, now_ms);

            if (purpose == 0) {
                snprintf(rest, sizeof(rest), "4 1 1 1");
                cost += random_below(&random, 3 * limit);
                log_add(&rule, now_ms, in_force, cost);
            } else if (purpose == 1) {
                snprintf(rest, sizeof(rest), "2 %llu 0 0 0 1 1 1", (unsigned long long)taken_ms);
                log_take(&rule, now_ms, taken_ms, cost);
            } else if (rule.n + cost <= in_force) {
                log_add(&rule, now_ms, in_force, cost);
                taken_ms = now_ms;
                admitted++;
            }

            snprintf(arguments, sizeof(arguments), "1 k 1 1 60000 %llu 0 %llu %s",
                     (unsigned long long)in_force, (unsigned long long)cost, rest);
            call(now_ms, arguments);
            check_log(&rule, now_ms, in_force);
        }

        assert_true(admitted >= 20);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_has_events_to_come),
        cmocka_unit_test(windows_to_come_are_used_up),
        cmocka_unit_test(buckets_pay_at_their_pace),
        cmocka_unit_test(debts_have_a_bound),
        cmocka_unit_test(charges_whatever_else_is_asked),
    };

    return cmocka_run_group_tests_name("redis charge", tests, start, stop);
}
