/* Copyright (C) the limit_sliding authors */

/*
 * Units that are charged whatever the limit says, in a real Redis, by the rule of debts.
 * The history of the rule is a second key, of a script that knows no debts.  SEED=n in
 * the environment runs one history, of that seed.
 */

#include <stdio.h>

#include "debt_model.hpp"
#include "redis/protocol/remote_state.hpp"
#include "redis_script.hpp"
#include "replies.hpp"

using namespace limit_sliding;

#define START_MS 1700000000000ull
#define HISTORIES draws(260)
#define HISTORY_STEPS 120

/* Scripts of script_sha, and the number that is added where rejected units are recorded. */
#define SETTLES 2
#define GIVES_BACK 3
#define RECORDS 16

/* Longer waits, which a debt has if the limit becomes a very low one, are not tried out. */
#define WAIT_MAX_MS (1000ull * YEAR_MS)

/* Is added to a purpose: the pace follows. */
#define PACED 32

/* The reply to keys, kinds and asks, but for its time. */
static const char *call(uint64_t now_ms, const char *arguments) {
    char command[512];

    snprintf(command, sizeof(command), "EVALSHA %s %s %llu", script_sha[SETTLES], arguments,
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

    /* one of several parts, by which the reply ends */
    assert_string_equal(call(START_MS, "1 c 1 0 60000 5 0 1 4 1 1 1"), "1 5 0");

    /* a key without a limit, and one that is blocked */
    freeReplyObject(redisCommand(server.context, "SET {k}:limit off"));
    assert_string_equal(call(START_MS, "1 k 1 2 60000 5 0 3 4 1 1 1"), "1 0 0");
    freeReplyObject(redisCommand(server.context, "SET {k}:limit 0"));
    assert_string_equal(call(START_MS, "1 k 1 2 60000 5 0 3 4 1 1 1"), "1 4503599627370496 0");
}

/* A key with a window of its own owes in that window, and its limit is the pace. */
static void each_window_has_its_debt(void **state) {
    uint64_t begins_ms = START_MS - START_MS % 60000;

    (void)state;
    forget_all();
    freeReplyObject(redisCommand(server.context, "SET {k}:limit 3/1s"));
    assert_int_equal(call(begins_ms, "1 k 1 2 60000 10 0 9 4 1 1 1")[0], '1');
    assert_int_equal(call(begins_ms + 2999, "1 k 1 2 60000 10 0 1 1 1 1 1")[0], '0');
    assert_int_equal(call(begins_ms + 3000, "1 k 1 2 60000 10 0 3 0 1 1 1")[0], '1');

    /* the zone's has none */
    freeReplyObject(redisCommand(server.context, "DEL {k}:limit"));
    assert_int_equal(call(begins_ms, "1 k 1 2 60000 10 0 10 0 1 1 1")[0], '1');

    /* one that is written wrongly is told of, and so is the debt */
    freeReplyObject(redisCommand(server.context, "SET {k}:limit ten"));
    assert_int_equal(call(begins_ms, "1 k 1 2 60000 10 0 4 4 1 1 1")[0], '1');
    assert_string_equal(call(begins_ms, "1 k 1 2 60000 10 0 1 1 1 1 1"),
                        "0 -1125899906842634 4 226666672 10");
}

/* Nothing that another limit, or another configuration, has written is a debt. */
static void knows_its_own_debts(void **state) {
    (void)state;
    forget_all();
    assert_int_equal(call(START_MS, "1 k 1 2 60000 10 0 25 4 1 1 1")[0], '1');
    assert_int_equal(call(START_MS, "1 k 1 2 120000 10 0 1 1 1 1 1")[0], '1');

    /* one of another version of the module stays */
    freeReplyObject(redisCommand(server.context, "SET {k}:f60s:debt 123"));
    assert_string_equal(call(START_MS, "1 k 1 2 60000 10 0 1 1 1 1 1"), "0 -3000 0");
    freeReplyObject(redisCommand(server.context, "DEL {k}:f60s:debt"));
    freeReplyObject(redisCommand(server.context, "LPUSH {k}:f60s:debt 123"));
    assert_string_equal(call(START_MS, "1 k 1 2 60000 10 0 1 1 1 1 1"), "0 10 10");
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
        assert_string_equal(call(START_MS, arguments),
                            kind[0] == '2' ? "1 1125899906842627 3000 226666672 9007199254740992"
                                           : "1 1125899906842627 3000 226666675 9007199254740992");

        /* it is kept as long as that, and not for ever */
        snprintf(arguments, sizeof(arguments), "1 k 1 %s 1 0 1 1 1", kind);
        assert_int_equal(call(START_MS + 999 * 60000ull, arguments)[0], '0');
        assert_int_equal(call(START_MS + 1002 * 60000ull, arguments)[0], '1');

        /* of a higher limit */
        forget_all();
        snprintf(arguments, sizeof(arguments), "1 k 1 %c 60000 1000000000000000 0 1 4 1 1 1",
                 kind[0] == '1' ? '2' : kind[0]);
        assert_string_equal(call(START_MS, arguments), "1 1000000000000000 0");
    }
}

/* ---- the rule ---- */

struct subject_t {
    const char *name;
    Algorithm algorithm;
    uint64_t window_ms;
    unsigned precision;
    int strict;
    uint32_t burst;
    Calendar calendar;
};

static const subject_t subjects[] = {
    {"counter", Algorithm::kCounter, 60000, 0, 0, 0, Calendar::kNone},
    {"strict counter", Algorithm::kCounter, 1000, 0, 1, 0, Calendar::kNone},
    {"counter of one part", Algorithm::kCounter, 100, 1, 0, 0, Calendar::kNone},
    {"counter of 7 parts", Algorithm::kCounter, 1000, 7, 0, 0, Calendar::kNone},
    {"log", Algorithm::kLog, 60000, 0, 0, 0, Calendar::kNone},
    {"short log", Algorithm::kLog, 300, 0, 0, 0, Calendar::kNone},
    {"fixed", Algorithm::kFixed, 60000, 0, 0, 0, Calendar::kNone},
    {"months", Algorithm::kFixed, 0, 0, 0, 0, Calendar::kMonth},
    {"weeks", Algorithm::kFixed, 0, 0, 0, 0, Calendar::kWeek},
    {"token_bucket", Algorithm::kTokenBucket, 60000, 0, 0, 0, Calendar::kNone},
    {"token_bucket, burst", Algorithm::kTokenBucket, 1000, 0, 0, 250, Calendar::kNone},
    {"token_bucket, small burst", Algorithm::kTokenBucket, 1000, 0, 0, 2, Calendar::kNone},
    {"leaky_bucket", Algorithm::kLeakyBucket, 1000, 0, 0, 0, Calendar::kNone},
    {"leaky_bucket, burst", Algorithm::kLeakyBucket, 60000, 0, 0, 30, Calendar::kNone},
};

static Policy policy_of(const subject_t *subject) {
    Policy policy = evicting(subject->window_ms);

    if (subject->calendar != Calendar::kNone) {
        policy.window_ms = Window::of(subject->calendar).ms;
    }

    policy.algorithm = subject->algorithm;
    policy.precision = subject->precision;
    policy.strict = subject->strict;
    policy.burst = subject->burst;
    policy.calendar = subject->calendar;
    policy.undelayed = kNeverDelayed;

    return policy;
}

/* An answer about one key. */
struct told_t {
    unsigned granted;
    int64_t values[68];
    RemoteState remote;
};

/* Asks about a key for n units; `taken` is of what is given back, else null. */
static void ask(const char *sha, const char *key, const Policy *policy, uint64_t now_ms,
                uint64_t limit, uint64_t pace, uint64_t cost, unsigned purpose, const Taken *taken,
                unsigned n, told_t *told) {
    char text[256];
    char more[128] = "";
    size_t length = 0;

    if (pace != limit) {
        purpose += PACED;
        length += (size_t)snprintf(more, sizeof(more), " %llu", (unsigned long long)pace);
    }

    if (taken != NULL) {
        snprintf(more + length, sizeof(more) - length, " %llu %llu %llu 0",
                 (unsigned long long)taken->now_ms, (unsigned long long)taken->values[0],
                 (unsigned long long)taken->values[1]);
    }

    unsigned extra = policy->algorithm == Algorithm::kCounter
                         ? policy->precision + (policy->strict ? 64 : 0)
                     : policy->algorithm == Algorithm::kFixed ? (unsigned)policy->calendar
                                                              : policy->burst;

    snprintf(text, sizeof(text), "EVALSHA %s 1 %s 1 %d %llu %llu %u %llu %u%s %u 1 1 %llu", sha,
             key, number_of(policy->algorithm), (unsigned long long)policy->window_ms,
             (unsigned long long)limit, extra, (unsigned long long)cost, purpose, more, n,
             (unsigned long long)now_ms);

    auto *reply = static_cast<redisReply *>(redisCommand(server.context, text));
    assert_non_null(reply);
    if (reply->type != REDIS_REPLY_ARRAY) { fail_msg("%s: %s", text, reply->str); }

    assert_int_equal(reply->element[0]->integer, now_ms);
    told->granted = (unsigned)reply->element[1]->integer;

    int64_t told_limit = reply->element[2]->integer;
    size_t at = 3;

    told->remote = {now_ms, 0, told->values};
    if (told_limit & kScriptDebt) {
        assert_true(
            is_remote_debt(*policy, reply->element[3]->integer, reply->element[4]->integer));
        told->remote.debt
            = {(uint64_t)reply->element[3]->integer, (uint64_t)reply->element[4]->integer, pace};
        at = 5;
    }

    told->remote.limit = (uint64_t)told_limit & (kScriptDebt - 1);
    for (size_t i = at; i < reply->elements; i++) {
        told->values[i - at] = reply->element[i]->integer;
    }

    if (purpose % RECORDS == 2 || purpose % RECORDS == 4) {
        assert_int_equal(reply->elements, at + 1);
    } else {
        assert_int_equal(reply->elements, at + remote_values(*policy, told->values[0]));
        assert_true(
            are_remote_values(*policy, told->remote.limit, told->remote.now_ms, told->values));
        const Wide requests = purpose % RECORDS == 1 ? 1 : told->granted;
        assert_true(told->granted == 0 || told->remote.has_room(*policy, requests * cost));
    }

    freeReplyObject(reply);
}

/* A key that knows nothing of debts. */
struct twin_t {
    const char *sha;
    Policy policy;
    Taken taken;
    told_t told;

    void send(uint64_t now_ms, uint64_t limit, uint64_t cost, unsigned purpose,
              const Taken *of = NULL, unsigned n = 1) {
        ask(sha, "twin", &policy, now_ms, limit, limit, cost, purpose, of, n, &told);
    }

    Verdict look(uint64_t now_ms, uint64_t limit, uint64_t cost) {
        send(now_ms, limit, cost, 1);
        return told.remote.describe(policy, cost, 0, false, true);
    }

    uint64_t left(uint64_t now_ms, uint64_t limit) { return look(now_ms, limit, 0).remaining; }

    bool fits(uint64_t now_ms, uint64_t limit, uint64_t cost) {
        look(now_ms, limit, cost);
        return told.granted == 1;
    }

    void admit(uint64_t now_ms, uint64_t limit, uint64_t cost) {
        send(now_ms, limit, cost, 0);
        assert_int_equal(told.granted, 1);
    }

    void give_back(uint64_t now_ms, uint64_t limit, uint64_t cost) {
        /* only where costs are settled is there a refund of no time */
        ask(script_sha[SETTLES], "twin", &policy, now_ms, limit, limit, cost, 2, &taken, 1, &told);
    }
};

struct run_t {
    uint64_t seed;
    uint64_t random;
    const subject_t *subject;
    Policy policy;
    twin_t twin;
    debt_model_t<twin_t> model;
    const char *sha;
    int records;
    int varies;
    uint64_t now_ms;
    uint64_t zone_limit;
    uint64_t limit; /* of the claim */
    uint64_t pace;
    uint64_t own; /* 0: the key has no limit of its own */

    Taken taken; /* of an admission; cost 0: none */
    uint64_t taken_cost;

    uint64_t admitted;
    uint64_t charged;
    unsigned paid; /* waits that were tried out */
    told_t told;
};

#define CHECK_EQUAL(run, what, expected, found)                                                    \
    do {                                                                                           \
        if ((uint64_t)(expected) != (uint64_t)(found)) {                                           \
            fail_msg("SEED=%llu: %s at %llu, limit %llu, pace %llu: line %d: %s is %llu instead "  \
                     "of %llu",                                                                    \
                     (unsigned long long)(run)->seed, (run)->subject->name,                        \
                     (unsigned long long)(run)->now_ms, (unsigned long long)(run)->limit,          \
                     (unsigned long long)(run)->pace, __LINE__, what, (unsigned long long)(found), \
                     (unsigned long long)(expected));                                              \
        }                                                                                          \
    } while (0)

static uint64_t below(run_t *run, uint64_t n) { return random_below(&run->random, n); }

static void send(run_t *run, uint64_t cost, unsigned purpose, const Taken *taken = NULL,
                 unsigned n = 1) {
    uint64_t owed = run->model.owed(run->now_ms, run->pace);
    uint64_t from = run->model.from + 8 * run->model.payments(run->now_ms);

    ask(run->sha, "one", &run->policy, run->now_ms, run->own ? run->zone_limit : run->limit,
        run->own ? run->zone_limit : run->pace, cost, purpose, taken, n, &run->told);
    run->told.remote.debt.pace = run->pace;

    CHECK_EQUAL(run, "limit", run->limit, run->told.remote.limit);
    CHECK_EQUAL(run, "debt", owed, run->told.remote.debt.units);
    if (owed > 0) {
        CHECK_EQUAL(run, "from", from, run->told.remote.debt.from);
    } else {
        run->model.units = 0; /* also if a lower limit would have left some */
    }
}

/* What a request is told that consumes nothing. */
static Verdict look(run_t *run, uint64_t cost) {
    uint64_t owed = run->model.owed(run->now_ms, run->pace);
    uint64_t left = run->twin.left(run->now_ms, run->limit);

    send(run, cost, 1);
    Verdict v = run->told.remote.describe(run->policy, cost, 0, false, true);

    Verdict twin = run->twin.look(run->now_ms, run->limit, cost + owed);
    CHECK_EQUAL(run, "granted", run->twin.told.granted, run->told.granted);
    CHECK_EQUAL(run, "remaining", left > owed ? left - owed : 0, v.remaining);
    CHECK_EQUAL(run, "excess", twin.excess, v.excess);

    return v;
}

/* Goes on to when a request is told to come again: it is admitted then, and not before. */
static void come_again(run_t *run, uint64_t cost) {
    Verdict v = look(run, cost);

    if (cost > run->policy.capacity(run->limit)) {
        CHECK_EQUAL(run, "wait", kNever, v.retry_after_ms);
        return;
    }

    CHECK_EQUAL(run, "waits", run->told.granted == 0, v.retry_after_ms > 0);
    if (v.retry_after_ms == 0 || v.retry_after_ms > WAIT_MAX_MS) { return; }

    run->now_ms += v.retry_after_ms - 1;
    look(run, cost);
    CHECK_EQUAL(run, "granted early", 0, run->told.granted);
    run->now_ms++;
    look(run, cost);
    CHECK_EQUAL(run, "granted", 1, run->told.granted);
    run->paid++;
}

/* The same until more remains. */
static void wait_for_reset(run_t *run) {
    /* a rejection applies the limit, under which a bucket is then kept until it has run off */
    look(run, run->policy.capacity(run->limit));

    Verdict v = look(run, 0);
    uint64_t remaining = v.remaining;

    CHECK_EQUAL(run, "has a reset", remaining<run->policy.capacity(run->limit), v.reset_ms> 0);
    if (v.reset_ms == 0 || v.reset_ms > WAIT_MAX_MS) { return; }

    run->now_ms += v.reset_ms - 1;
    CHECK_EQUAL(run, "remaining before", remaining, look(run, 0).remaining);
    run->now_ms++;
    CHECK_EQUAL(run, "more remaining", 1, look(run, 0).remaining > remaining);
    run->paid++;
}

static void request(run_t *run, uint64_t cost, unsigned n) {
    uint64_t owed = run->model.owed(run->now_ms, run->pace);
    unsigned records = run->records ? RECORDS : 0;
    unsigned granted = 0;

    bool first = run->model.fits(run->now_ms, run->pace, run->limit, cost);
    RemoteState before = run->twin.told.remote;
    Taken taken_of_twin = before.taken(run->policy, owed);

    send(run, cost, records, NULL, n);

    if (first && owed > 0) {
        run->model.admit(run->now_ms, run->pace, run->limit, cost);
        granted = 1;
    }

    if (owed == 0 || (first && cost > 0 && n > 1)) {
        run->twin.send(run->now_ms, run->limit, cost, records, NULL, n - granted);
        granted += run->twin.told.granted;
    } else if (first && cost == 0) {
        granted = n;
    }

    CHECK_EQUAL(run, "granted", granted, run->told.granted);

    if (granted == 1 && cost > 0) {
        run->taken = run->told.remote.taken(run->policy, 0);
        run->twin.taken = taken_of_twin;
        run->taken_cost = cost;
    }

    run->admitted += granted * cost;

    if (granted == n && n == 1 && cost > 0) {
        Verdict v = run->told.remote.describe(run->policy, cost, 0, true, false);
        Verdict after = look(run, 0);

        /* a counter may have more parts now */
        CHECK_EQUAL(run, "remaining", after.remaining, v.remaining);
    }

    if (granted == 0 && owed > 0) {
        /* a key that owes has recorded nothing of what was rejected */
        Verdict v = run->told.remote.describe(run->policy, cost, 0, false, false,
                                              run->records ? n * cost : 0);
        Verdict after = look(run, cost);

        CHECK_EQUAL(run, "remaining of a debtor", after.remaining, v.remaining);
        CHECK_EQUAL(run, "excess of a debtor", after.excess, v.excess);
    }
}

static void charge(run_t *run, uint64_t cost) {
    send(run, cost, 4);

    uint64_t lost = run->model.charge(run->now_ms, run->pace, cost);
    CHECK_EQUAL(run, "lost", lost, run->told.values[0]);
    run->charged += cost - lost;
}

static void give_back(run_t *run) {
    uint64_t cost = 1 + below(run, run->taken_cost);
    Taken none = {};

    if (below(run, 4) == 0) {
        run->taken = none;
        run->twin.taken = none;
    }

    send(run, cost, 2, &run->taken);
    run->model.give_back(run->now_ms, run->pace, run->limit, cost);
    run->taken_cost = 0;
    run->varies = 1; /* the sum of what was taken is not known any more */
}

static uint64_t draw_limit(run_t *run) {
    static const uint64_t limits[] = {1, 3, 7, 10, 40, 100, 300, 1000};
    static const uint64_t large[] = {5000, 20000, 1000000, 1000000000000};

    return run->subject->algorithm == Algorithm::kLog || below(run, 3) != 0
               ? limits[below(run, LENGTH(limits))]
               : large[below(run, LENGTH(large))];
}

static uint64_t draw_cost(run_t *run, uint64_t limit) {
    switch (below(run, 6)) {
    case 0:
        return 0;
    case 1:
        return limit + below(run, 2);
    case 2:
    case 3:
        return 1 + below(run, limit);
    default:
        return 1 + below(run, limit / 8 + 1);
    }
}

static uint64_t draw_charge(run_t *run, uint64_t limit) {
    switch (below(run, 8)) {
    case 0:
        return limit * (1 + below(run, 30)) + below(run, 2);
    case 1:
        return 1 + below(run, 5000) * limit / 4;
    case 2:
    case 3:
        return 1 + below(run, 4 * limit);
    default:
        return 1 + below(run, limit);
    }
}

static uint64_t border_ms(const run_t *run) {
    const auto &model = run->model;
    uint64_t window = 8 * (model.window_at(run->now_ms) + 1);
    uint64_t pays = model.from + 8 * (model.payments(run->now_ms) + 1);

    return model.begin_ms(model.units > 0 ? pays : window);
}

static void pass(run_t *run) {
    uint64_t w = run->policy.window_ms;

    switch (below(run, 10)) {
    case 0:
        run->now_ms += below(run, 20 * w);
        break;
    case 1:
    case 2:
        run->now_ms = border_ms(run) - 1 + below(run, 3);
        break;
    case 3:
    case 4:
        run->now_ms += below(run, w);
        break;
    case 5:
    case 6:
        run->now_ms += below(run, w / 8);
        break;
    default:
        run->now_ms += below(run, 2);
    }
}

static void set_pace(run_t *run) {
    run->pace = run->own ? run->own : run->zone_limit;
    run->limit = run->pace;
}

/* Changes the key's own limit.  Redis is asked before, and forgets a debt that is paid, and at
 * once after that, so that it keeps another one for long enough. */
static void change_limit(run_t *run) {
    set_pace(run);
    look(run, 0);
    run->own = below(run, 2) ? draw_limit(run) : 0;
    freeReplyObject(redisCommand(server.context,
                                 run->own ? "SET {one}:limit %llu" : "DEL {one}:limit",
                                 (unsigned long long)run->own));
    set_pace(run);
    look(run, 0);
}

static void step(run_t *run) {
    pass(run);
    if (run->varies && below(run, 16) == 0) { change_limit(run); }

    set_pace(run);
    if (run->varies && !run->own && below(run, 4) == 0) { run->limit = draw_limit(run); }

    switch (below(run, 12)) {
    case 0:
    case 1:
        charge(run, draw_charge(run, run->pace));
        break;
    case 2:
        if (run->varies && run->taken_cost > 0) { give_back(run); }
        break;
    case 3:
        come_again(run, draw_cost(run, run->limit));
        break;
    case 4:
        wait_for_reset(run);
        break;
    case 5:
        look(run, draw_cost(run, run->limit));
        break;
    default:
        request(run, draw_cost(run, run->limit), 1 + (unsigned)(below(run, 4) ? 0 : below(run, 4)));
    }
}

/* A bucket with a burst is kept until it has run off under the lowest limit of its time. */
static unsigned run_history(const subject_t *subject, uint64_t seed) {
    static run_t run;

    run = {};
    run.seed = run.random = seed;
    run.subject = subject;
    run.policy = policy_of(subject);
    run.records = below(&run, 3) == 0;
    run.policy.counts_rejected = run.records;
    run.varies = below(&run, 2) == 0;
    run.sha = script_sha[SETTLES + (run.records ? SCRIPT_KINDS : 0)];
    run.twin.sha = script_sha[GIVES_BACK + (run.records ? SCRIPT_KINDS : 0)];
    run.twin.policy = run.policy;
    run.model = {run.policy, &run.twin, 0, 0};
    run.now_ms = START_MS + random_next(&run.random) % YEAR_MS;
    run.zone_limit = draw_limit(&run);

    uint64_t first = run.model.window_at(run.now_ms);

    forget_all();
    for (unsigned i = 0; i < HISTORY_STEPS; i++) {
        step(&run);
    }

    if (!run.varies && !run.records) {
        /* no more than the windows had room for, and what is owed */
        uint64_t windows = run.model.window_at(run.now_ms) - first + 2;
        uint64_t most = windows * run.zone_limit + run.policy.capacity(run.zone_limit)
                        + run.model.owed(run.now_ms, run.pace);

        CHECK_EQUAL(&run, "conserved", 1, run.admitted + run.charged <= most);
    }

    return run.paid;
}

static void charges_by_the_rule(void **state) {
    const char *seed = getenv("SEED");
    unsigned paid = 0;

    (void)state;

    for (uint64_t i = 0; i < (seed ? 1 : HISTORIES); i++) {
        uint64_t number = seed ? strtoull(seed, NULL, 10) : i;
        paid += run_history(&subjects[number % LENGTH(subjects)], number);
    }

    assert_true(seed || paid > HISTORIES);
}

/* D units are paid in D / P windows once the history, which is full, has run off: in the
 * window after those all of the limit is free again, and in the last one it is not. */
static void debts_are_paid_in_time(void **state) {
    (void)state;

    for (const subject_t &subject : subjects) {
        for (uint64_t windows : {1, 2, 30, 999}) {
            Policy policy = policy_of(&subject);
            uint64_t limit = 12;
            uint64_t capacity = policy.capacity(limit);
            debt_model_t<twin_t> model = {policy, NULL, 0, 0};
            uint64_t begins_ms = model.begin_ms(model.new_from(START_MS, limit) + 8 * windows);
            told_t told;

            forget_all();
            ask(script_sha[SETTLES], "k", &policy, START_MS, limit, limit,
                capacity + limit * (windows - 1) + 1, 4, NULL, 1, &told);
            assert_int_equal(told.values[0], 0);

            /* whatever the limit of the place is that looks */
            ask(script_sha[SETTLES], "k", &policy, begins_ms - 1, limit * 5, limit,
                policy.capacity(limit * 5), 1, NULL, 1, &told);
            assert_int_equal(told.granted, 0);
            assert_int_equal(told.remote.debt.units, 1);
            ask(script_sha[SETTLES], "k", &policy, begins_ms, limit, limit, capacity, 1, NULL, 1,
                &told);
            assert_int_equal(told.granted, 1);
            assert_int_equal(told.remote.debt.units, 0);
        }
    }
}

/* A debt lasts until it is paid, also under a limit that is lower than when it was made. */
static void debts_outlast_their_payment(void **state) {
    (void)state;
    forget_all();

    assert_int_equal(call(START_MS, "1 k 1 2 60000 100 0 1100 4 1 1 1")[0], '1');
    freeReplyObject(redisCommand(server.context, "SET {k}:limit 10"));
    assert_int_equal(call(START_MS, "1 k 1 2 60000 100 0 1 1 1 1 1")[0], '0');

    for (uint64_t windows = 50; windows < 100; windows += 10) {
        assert_int_equal(call(START_MS + windows * 60000, "1 k 1 2 60000 100 0 1 1 1 1 1")[0], '0');
    }

    assert_int_equal(call(START_MS + 101 * 60000, "1 k 1 2 60000 100 0 1 1 1 1 1")[0], '1');
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(charges_by_the_rule),
        cmocka_unit_test(debts_are_paid_in_time),
        cmocka_unit_test(debts_outlast_their_payment),
        cmocka_unit_test(debts_have_a_bound),
        cmocka_unit_test(each_window_has_its_debt),
        cmocka_unit_test(knows_its_own_debts),
        cmocka_unit_test(charges_whatever_else_is_asked),
    };

    return cmocka_run_group_tests_name("redis charge", tests, start, stop);
}
