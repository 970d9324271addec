/* Copyright (C) the limit_sliding authors */

/*
 * algorithm=counter of the script in a real Redis, beside its rule, through
 * random histories: limits that change from call to call, costs, what is given back, and a
 * clock that is set back.  The same is granted, and all that is told is right.  SEED=n in the
 * environment runs one history, of that seed; STEPS=n has so many steps in all.
 */

#include <stdio.h>

#include "counter_rule.hpp"
#include "redis/protocol/remote_state.hpp"
#include "redis_script.hpp"

using namespace limit_sliding;

#define HISTORY_STEPS 250
#define STEPS 100000
#define START_MS 1700000000000ull

/* Calls under way, so that Redis need not wait for us. */
#define CALLS 100
#define NUMBERS (3 + RULE_PARTS_MAX + 4)
#define EVENTS 4096

struct call_t {
    size_t n; /* numbers of the reply; 0: any */
    long long number[NUMBERS];
    char text[192];
};

struct event_t {
    uint64_t at_ms;
    uint64_t units;
};

struct run_t {
    uint64_t seed;
    uint64_t random;
    Policy policy;
    rule_t rule;
    char key[32];
    uint64_t now_ms;
    uint64_t limits[4]; /* that requests have; one of them most often */
    unsigned nlimits;
    uint64_t own; /* the key's override; 0: it has none */
    int is_steady;
    int is_settled; /* by the script that can charge */

    /* what was admitted, in order, of this window and before */
    event_t event[EVENTS];
    size_t nevents;

    /* the latest that was granted, and when, by its part */
    uint64_t taken_ms;
    uint64_t taken_cost;
    int64_t taken_n;
    int64_t taken_part;

    call_t call[CALLS];
    size_t ncalls;
};

static uint64_t below(run_t *run, uint64_t n) { return random_below(&run->random, n); }

static void flush(run_t *run) {
    for (size_t i = 0; i < run->ncalls; i++) {
        const call_t *call = &run->call[i];
        void *data;
        redisReply *reply;

        assert_int_equal(redisGetReply(server.context, &data), REDIS_OK);
        reply = (redisReply *)data;

        if (reply->type == REDIS_REPLY_ERROR) {
            fail_msg("SEED=%llu: %s: %s", (unsigned long long)run->seed, call->text, reply->str);
        }

        if (call->n > 0 && reply->elements != call->n) {
            fail_msg("SEED=%llu: %s: %zu numbers instead of %zu", (unsigned long long)run->seed,
                     call->text, reply->elements, call->n);
        }

        for (size_t j = 0; j < call->n; j++) {
            if (reply->element[j]->integer != call->number[j]) {
                fail_msg("SEED=%llu: %s: number %zu is %lld instead of %lld",
                         (unsigned long long)run->seed, call->text, j, reply->element[j]->integer,
                         call->number[j]);
            }
        }

        freeReplyObject(reply);
    }

    run->ncalls = 0;
}

static call_t *begin_call(run_t *run) {
    if (run->ncalls == CALLS) { flush(run); }

    run->call[run->ncalls].n = 0;

    return &run->call[run->ncalls++];
}

/* Sends a command whose reply does not matter. */
static void send(run_t *run, const char *name, const char *suffix, uint64_t value) {
    call_t *call = begin_call(run);

    snprintf(call->text, sizeof(call->text), value ? "%s %s%s %llu" : "%s %s%s", name, run->key,
             suffix, (unsigned long long)value);
    redisAppendCommand(server.context, call->text);
}

static call_t *send_script(run_t *run, uint64_t limit, uint64_t cost, const char *look,
                           unsigned units) {
    call_t *call = begin_call(run);

    snprintf(call->text, sizeof(call->text), "EVALSHA %s 1 %s 1 0 %llu %llu %u %llu %s %u 1 1 %llu",
             script_sha[run->is_settled ? 2 : 1], run->key,
             (unsigned long long)run->policy.window_ms, (unsigned long long)limit,
             run->policy.precision + (run->policy.strict ? 64 : 0), (unsigned long long)cost, look,
             units, (unsigned long long)run->now_ms);
    redisAppendCommand(server.context, call->text);

    return call;
}

#define CHECK(run, holds)                                                                          \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            fail_msg("SEED=%llu: %s: %s", (unsigned long long)(run)->seed,                         \
                     (run)->call[(run)->ncalls - 1].text, #holds);                                 \
        }                                                                                          \
    } while (0)

/* Whether no more than that is used, x w, from then on, and not before. */
static int falls_at(const run_t *run, uint64_t limit, rule_wide_t most, uint64_t ms) {
    return ms > 0 && rule_used_at(&run->rule, run->now_ms + ms, limit) <= most
           && rule_used_at(&run->rule, run->now_ms + ms - 1, limit) > most;
}

/* What is told of the state after a call is so, and changes then, to the ms. */
static void check_told(const run_t *run, const call_t *call, uint64_t limit, uint64_t cost,
                       unsigned granted, int look) {
    uint64_t w = run->policy.window_ms;
    int64_t values[RULE_PARTS_MAX + 4];
    RemoteState remote = {run->now_ms, limit, values};
    rule_wide_t used = rule_used_at(&run->rule, run->now_ms, limit);
    rule_wide_t full = (rule_wide_t)limit * w;
    rule_wide_t wanted = used + (rule_wide_t)cost * w;
    rule_wide_t excess = wanted > full ? ((wanted - full) * 1000 + w - 1) / w : 0;
    uint64_t remaining = used > full ? 0 : (uint64_t)((full - used) / w);
    Verdict v;

    for (size_t i = 3; i < call->n; i++) {
        values[i - 3] = call->number[i];
    }

    CHECK(run, remote_values(run->policy, values[0]) == call->n - 3);
    CHECK(run, are_remote_values(run->policy, limit, run->now_ms, values));
    v = remote.describe(run->policy, cost, granted, 0, look);

    CHECK(run, v.limit == limit);
    CHECK(run, v.remaining == remaining);
    CHECK(run, v.excess == excess);
    CHECK(run, remaining == limit
                   ? v.reset_ms == 0
                   : falls_at(run, limit, full - (remaining + (rule_wide_t)1) * w, v.reset_ms));
    CHECK(run, cost > limit ? v.retry_after_ms == kNever
               : wanted <= full
                   ? v.retry_after_ms == 0
                   : falls_at(run, limit, full - (rule_wide_t)cost * w, v.retry_after_ms));
}

/* In any w no more than the limit is admitted if the counter is strict; else,
 * with n > 1 parts that follow from it, an n-th more. */
static void check_admitted(run_t *run, uint64_t limit, uint64_t units, int64_t n) {
    uint64_t most = limit;
    uint64_t sum = units;

    if (!run->is_steady || run->is_settled
        || (!run->policy.strict && (run->policy.precision > 0 || n == 1))) {
        return;
    }

    if (!run->policy.strict) { most += limit / (uint64_t)n; }

    run->event[run->nevents++ % EVENTS] = {run->now_ms, units};

    for (size_t i = 2; i <= run->nevents && i <= EVENTS; i++) {
        const event_t *event = &run->event[(run->nevents - i) % EVENTS];

        if (run->now_ms - event->at_ms >= run->policy.window_ms) { break; }

        sum += event->units;
    }

    if (sum > most) {
        fail_msg("SEED=%llu: %llu of %llu in a window, at %llu", (unsigned long long)run->seed,
                 (unsigned long long)sum, (unsigned long long)most,
                 (unsigned long long)run->now_ms);
    }
}

static void request(run_t *run, uint64_t limit, uint64_t cost, unsigned units, int look) {
    uint64_t in_force = run->own ? run->own : limit;
    rule_view_t view = rule_view(&run->rule, run->now_ms, in_force);
    uint64_t ends_ms = rule_ends_ms(&run->rule, &view, run->now_ms);
    unsigned granted;
    call_t *call = send_script(run, limit, cost, look ? "1" : "0", units);

    granted = rule_take(&run->rule, run->now_ms, in_force, cost, units, look);

    call->number[0] = (long long)run->now_ms;
    call->number[1] = granted;
    call->number[2] = (long long)in_force + (run->own ? kScriptOwn : 0);

    call->number[3] = view.state.n;
    call->number[4] = view.state.newest;
    call->number[5] = (long long)ends_ms;

    for (int64_t i = 0; i <= view.state.n; i++) {
        call->number[6 + i] = (long long)view.state.count[i];
    }

    call->n = 7 + (size_t)view.state.n;

    check_told(run, call, in_force, cost, granted, look);

    if (granted > 0 && cost > 0 && !look) {
        check_admitted(run, in_force, granted * cost, view.state.n);
        run->taken_ms = run->now_ms;
        run->taken_cost = cost;
        run->taken_n = view.state.n;
        run->taken_part = view.state.newest;
    }
}

static void give_back(run_t *run, uint64_t limit) {
    char look[96];
    call_t *call;

    snprintf(look, sizeof(look), "2 %llu %lld %lld 0", (unsigned long long)run->taken_ms,
             (long long)run->taken_n, (long long)run->taken_part);
    call = send_script(run, limit, run->taken_cost, look, 1);
    rule_give_back(&run->rule, run->taken_n, run->taken_part, run->taken_cost);

    memset(call->number, 0, sizeof(call->number));
    call->number[0] = (long long)run->now_ms;
    call->number[1] = 1;
    call->number[2] = (long long)(run->own ? run->own + kScriptOwn : limit);
    call->n = 4;
    run->taken_cost = 0;
}

/* At a border of kinds, most often. */
static uint64_t draw_limit(run_t *run) {
    const rule_kind_t *kind = &rule_kinds[below(run, LENGTH(rule_kinds))];
    uint64_t most = kind->limit_max < kRemoteMax ? kind->limit_max : kRemoteMax;

    switch (below(run, 8)) {
    case 0:
        return most;
    case 1:
        return most < kRemoteMax ? most + 1 : most - below(run, 3);
    case 2:
        return 1 + below(run, most);
    case 3:
        return random_scale(&run->random, 1, kRemoteMax);
    case 4:
        return random_scale(&run->random, 1, 100000);
    case 5:
    case 6:
        return (1ull << below(run, 50)) - below(run, 2) + 1;
    default:
        return 1 + below(run, 40);
    }
}

/* What is left, or one more. */
static uint64_t draw_rest(run_t *run, uint64_t limit) {
    uint64_t w = run->policy.window_ms;
    rule_wide_t full = (rule_wide_t)limit * w;
    rule_wide_t used = rule_used_at(&run->rule, run->now_ms, limit);

    return (used < full ? (uint64_t)((full - used) / w) : 0) + below(run, 2);
}

static uint64_t draw_cost(run_t *run, uint64_t limit) {
    switch (below(run, 14)) {
    case 0:
        return 0;
    case 1:
        return limit + below(run, 2);
    case 2:
        return 1 + below(run, limit);
    case 3:
    case 4:
        return 1 + below(run, limit / 4 + 1);
    case 5:
    case 6:
        return 1 + below(run, limit / 16 + 1);
    case 7:
    case 8:
        return draw_rest(run, limit);
    default:
        return 1;
    }
}

/* To around where a part begins, of as many as some limit has. */
static uint64_t border_gap_ms(run_t *run) {
    uint64_t parts = run->policy.precision
                         ? run->policy.precision
                         : (uint64_t)rule_kinds[below(run, LENGTH(rule_kinds))].parts;
    uint64_t w = run->policy.window_ms;
    uint64_t next = run->now_ms * parts / w + 1 + below(run, 3);

    return (next * w + parts - 1) / parts - run->now_ms - 1 + below(run, 3);
}

static void pass(run_t *run) {
    uint64_t w = run->policy.window_ms;
    uint64_t back_ms = below(run, 8) ? below(run, w / 8 + 1) : below(run, 4 * w);

    switch (below(run, 16)) {
    case 0:
        run->now_ms += below(run, 4) ? below(run, 2 * w) : below(run, 100 * w);
        break;
    case 1:
        run->now_ms += w - 1 + below(run, 3);
        break;
    case 2:
    case 3:
    case 4:
        run->now_ms += border_gap_ms(run);
        break;
    case 5:
    case 6:
        run->now_ms += below(run, w / 8);
        break;
    case 7:
        run->now_ms += below(run, w / 60);
        break;
    case 8:
        run->now_ms -= run->is_steady ? 0 : back_ms;
        break;
    default:
        run->now_ms += below(run, 3);
    }
}

static void step(run_t *run) {
    uint64_t limit = run->limits[below(run, 3) ? 0 : below(run, run->nlimits)];

    pass(run);

    if (!run->is_steady && rule_is_over(&run->rule, run->now_ms)) {
        /* Redis may have forgotten what would count again once the clock is
         * set back */
        send(run, "DEL", "", 0);
        run->rule.state.n = 0;
    }

    if (below(run, 64) == 0) {
        run->own = below(run, 2) ? draw_limit(run) : 0;
        send(run, run->own ? "SET" : "DEL", ":limit", run->own);
    }

    if (run->taken_cost > 0 && (!run->is_steady || run->is_settled) && below(run, 8) == 0) {
        give_back(run, limit);
        return;
    }

    request(run, limit, draw_cost(run, run->own ? run->own : limit),
            below(run, 4) ? 1 : 1 + (unsigned)below(run, 5), below(run, 16) == 0);
}

static void run_history(uint64_t seed) {
    static run_t run;
    static const uint32_t precisions[] = {0, 0, 0, 0, 1, 2, 7, 60};

    memset(&run, 0, sizeof(run));
    run.seed = run.random = seed;
    run.policy.window_ms = random_window_ms(&run.random);
    run.policy.precision = precisions[below(&run, LENGTH(precisions))];
    run.policy.strict = below(&run, 3) == 0;
    run.rule.window_ms = run.policy.window_ms;
    run.rule.precision = run.policy.precision;
    run.rule.strict = run.policy.strict;
    run.now_ms = START_MS + random_next(&run.random) % YEAR_MS;
    run.is_steady = below(&run, 2) == 0;
    run.is_settled = below(&run, 2) == 0;
    run.nlimits = below(&run, 3) ? LENGTH(run.limits) : 1;
    snprintf(run.key, sizeof(run.key), "run:{%llu}", (unsigned long long)seed);

    for (size_t i = 0; i < run.nlimits; i++) {
        run.limits[i] = draw_limit(&run);
    }

    for (unsigned i = 0; i < HISTORY_STEPS; i++) {
        step(&run);
    }

    send(&run, "DEL", "", 0);
    flush(&run);
}

static void decides_by_the_rule(void **state) {
    const char *seed = getenv("SEED");
    const char *steps = getenv("STEPS");
    uint64_t histories = (steps ? strtoull(steps, NULL, 10) : STEPS) / HISTORY_STEPS;

    (void)state;

    for (uint64_t i = 0; i < (seed ? 1 : histories); i++) {
        run_history(seed ? strtoull(seed, NULL, 10) : i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decides_by_the_rule),
    };

    return cmocka_run_group_tests_name("redis counter", tests, start, stop);
}
