/* Copyright (C) the limit_sliding authors */

/*
 * Fixed windows and buckets of the script in a real Redis, beside a model of
 * 128-bit numbers, under limits up to 10^15 that change from call to call, and
 * counts that take more than three bytes.
 * SEED=n in the environment runs one history, of that seed.
 */

#include <stdio.h>

#include "redis/protocol/remote_state.hpp"
#include "redis_script.hpp"

using namespace limit_sliding;

#define HISTORIES draws(400)
#define HISTORY_STEPS 200
#define START_MS 1700000000000ull

__extension__ typedef __int128 wide_t;

struct model_t {
    uint64_t at_ms; /* or the number of a fixed window */
    wide_t used;    /* of a bucket x w */
    uint64_t lowest;
    uint64_t until_ms; /* Redis forgets it; 0: there is none */
};

struct run_t {
    uint64_t seed;
    uint64_t random;
    Policy policy;
    model_t model;
    char key[32];
    uint64_t now_ms;
    uint64_t limits[3];
    unsigned nlimits;
};

static wide_t up(wide_t n, wide_t by) { return (n + by - 1) / by; }

static unsigned bits_of(uint64_t n) { return n == 0 ? 0 : 64 - (unsigned)__builtin_clzll(n); }

/* What a bucket holds, and the ms to fill it under any limit. */
static void capacity(const Policy *policy, uint64_t limit, wide_t *most, wide_t *longest) {
    unsigned bits = bits_of(policy->window_ms) + bits_of(policy->burst) + 2;
    wide_t span = (wide_t)1 << ((bits < 24 ? 24 : bits > 34 ? 34 : bits) - 2);
    wide_t burst = (wide_t)policy->burst + (policy->algorithm == Algorithm::kLeakyBucket);

    *most = limit;
    *longest = policy->window_ms;

    if (burst == 0) { return; }

    *most = span * limit / policy->window_ms;
    *most = burst < *most ? burst : *most;
    *longest = burst * policy->window_ms < span ? burst * policy->window_ms : span;
}

/* Sets the expiry of a state, which the bucket had before with the time `before_ms`, if at all.
 * States of one window keep the expiry of the first one, if that is late enough. */
static void outlast(run_t *run, uint64_t before_ms, uint64_t time_ms, wide_t used, uint64_t limit) {
    model_t *m = &run->model;
    uint64_t w = run->policy.window_ms, least_ms = (m->at_ms / w + 2) * w;
    wide_t lasts = (wide_t)(time_ms - run->now_ms) + up(used, limit);
    uint64_t until_ms;

    lasts = lasts > w ? lasts : w;
    until_ms = run->now_ms + (lasts < 100000000000000 ? (uint64_t)lasts : 100000000000000);

    if (m->until_ms != 0 && before_ms / w == m->at_ms / w && until_ms <= least_ms) { return; }

    m->until_ms = until_ms > least_ms ? until_ms : least_ms;
}

/* Grants as many as there is room for, x w, and tells what was taken before. */
static uint64_t bucket_take(run_t *run, uint64_t limit, uint64_t cost, uint64_t units, int look,
                            wide_t *before) {
    model_t *m = &run->model;
    uint64_t w = run->policy.window_ms;
    uint64_t before_ms = m->at_ms, time_ms = run->now_ms > before_ms ? run->now_ms : before_ms;
    wide_t most, longest, used, above = 0, taken, granted = (wide_t)units, fits;
    uint64_t low;

    capacity(&run->policy, limit, &most, &longest);

    if (m->used > most * w) { above = (m->used - most * w) / limit * limit; }

    used = m->used - (wide_t)(time_ms - m->at_ms) * limit;
    used = used < 0 ? 0 : used;
    taken = used - above < 0 ? 0 : used - above;
    low = used > 0 ? m->lowest : limit;
    *before = taken;

    fits = most - up(taken, w);
    fits = fits < 0 ? 0 : fits;

    if (cost > 0 && !look) {
        granted = fits / cost < granted ? fits / cost : granted;
    } else if (fits < cost) {
        granted = 0;
    }

    if (granted > 0 && cost > 0 && !look) {
        wide_t rest = (wide_t)(time_ms - m->at_ms) < longest ? used - taken : 0;
        wide_t now_used = taken + granted * cost * w;

        low = low < limit ? low : limit;
        *m = {time_ms, now_used, low, m->until_ms};

        if (above > 0 && rest > 0) {
            wide_t ago = up(most * w - now_used, limit);

            m->at_ms = time_ms - (uint64_t)ago;
            m->used = now_used + ago * limit + up(rest, limit) * limit;
        }
        outlast(run, before_ms, time_ms, now_used, low);
    }

    if (granted < units && limit < low) {
        m->lowest = limit;
        outlast(run, before_ms, time_ms, *before, limit);
    }

    return (uint64_t)granted;
}

static uint64_t fixed_take(run_t *run, uint64_t limit, uint64_t cost, uint64_t units, int look,
                           wide_t *before) {
    model_t *m = &run->model;
    uint64_t w = run->policy.window_ms;
    uint64_t granted = 0;

    *before = m->at_ms < run->now_ms / w ? 0 : m->used;

    while (granted < units && *before + (wide_t)cost * (look ? 1 : granted + 1) <= limit) {
        granted++;
    }

    if (granted > 0 && cost > 0 && !look) {
        if (m->at_ms < run->now_ms / w) { m->until_ms = run->now_ms + w; }

        m->at_ms = run->now_ms / w > m->at_ms ? run->now_ms / w : m->at_ms;
        m->used = *before + (wide_t)granted * cost;
    }

    return granted;
}

static uint64_t below(run_t *run, uint64_t n) { return random_below(&run->random, n); }

/* What the next request is told that nothing of its cost fits. */
static void check_told(const run_t *run, const redisReply *reply, uint64_t limit, uint64_t cost,
                       wide_t used) {
    uint64_t w = run->policy.window_ms;
    int64_t values[2] = {reply->element[3]->integer, reply->element[reply->elements - 1]->integer};
    RemoteState remote = {run->now_ms, limit, values};
    wide_t most = limit;
    wide_t longest, over, wait;
    Verdict v;

    if (run->policy.algorithm == Algorithm::kFixed) {
        used *= w;
    } else {
        capacity(&run->policy, limit, &most, &longest);
    }

    assert_true(are_remote_values(run->policy, limit, remote.now_ms, values));
    v = remote.describe(run->policy, cost, (uint32_t)reply->element[1]->integer, 0, 0);
    over = used + (wide_t)cost * w - most * w;
    wait = up(over, limit) < (wide_t)1 << 41 ? up(over, limit) : (wide_t)1 << 41;

    if (run->policy.algorithm == Algorithm::kFixed) {
        wait = w - run->now_ms % w;
    } else if (used > most * w) {
        /* a bucket is not more than empty */
        over = (wide_t)cost * w;
    }

    assert_true(v.remaining == (used < most * w ? (uint64_t)((most * w - used) / w) : 0));
    assert_true(v.retry_after_ms == (cost > most ? kNever : over > 0 ? (uint64_t)wait : 0));

    if (run->policy.algorithm != Algorithm::kLeakyBucket) {
        assert_true(v.excess == (over > 0 ? (uint64_t)up(over * 1000, w) : 0));
    }
}

static void request(run_t *run, uint64_t limit, uint64_t cost, uint64_t units, int look) {
    int is_fixed = run->policy.algorithm == Algorithm::kFixed;
    uint64_t w = run->policy.window_ms;
    wide_t before;
    char text[192];
    redisReply *reply;
    uint64_t granted;
    wide_t told;

    if (run->now_ms >= run->model.until_ms) { memset(&run->model, 0, sizeof(run->model)); }

    if (run->model.until_ms == 0) { run->model.lowest = limit; }

    granted = is_fixed ? fixed_take(run, limit, cost, units, look, &before)
                       : bucket_take(run, limit, cost, units, look, &before);

    snprintf(text, sizeof(text), "EVALSHA %s 1 %s 1 %d %llu %llu %u %llu %d %llu 1 1 %llu",
             script_sha[run->seed % 2], run->key, number_of(run->policy.algorithm),
             (unsigned long long)w, (unsigned long long)limit, run->policy.burst,
             (unsigned long long)cost, look, (unsigned long long)units,
             (unsigned long long)run->now_ms);
    reply = static_cast<redisReply *>(redisCommand(server.context, text));
    assert_non_null(reply);

    if (reply->type != REDIS_REPLY_ARRAY) { fail_msg("%s: %s", text, reply->str); }

    assert_int_equal(reply->elements, is_fixed ? 4 : 5);
    assert_int_equal(reply->element[2]->integer, limit);
    told = reply->element[3]->integer;

    if (!is_fixed) { told = told * w + reply->element[4]->integer; }

    if ((uint64_t)reply->element[1]->integer != granted || told != before) {
        fail_msg("SEED=%llu: %s: granted %lld instead of %llu, of %.0f instead of %.0f",
                 (unsigned long long)run->seed, text, reply->element[1]->integer,
                 (unsigned long long)granted, (double)told, (double)before);
    }

    if (!look) {
        check_told(run, reply, limit, cost, before + (wide_t)granted * cost * (is_fixed ? 1 : w));
    }

    freeReplyObject(reply);
}

static uint64_t draw_limit(run_t *run) {
    switch (below(run, 4)) {
    case 0:
        return kRemoteMax - below(run, 3);
    case 1:
        return 1 + below(run, kRemoteMax);
    case 2:
        return (1ull << below(run, 50)) + below(run, 3);
    default:
        return random_scale(&run->random, 1, kRemoteMax);
    }
}

static uint64_t draw_cost(run_t *run, uint64_t limit) {
    switch (below(run, 10)) {
    case 0:
        return limit + below(run, 2);
    case 1:
        return 1 + below(run, limit);
    case 2:
    case 3:
        return 1 + below(run, limit / 4 + 1);
    case 4:
    case 5:
        return 1 + below(run, limit / 16 + 1);
    default:
        return below(run, 4);
    }
}

static void pass(run_t *run) {
    uint64_t w = run->policy.window_ms;

    switch (below(run, 12)) {
    case 0:
        run->now_ms += below(run, 3 * w);
        break;
    case 1:
    case 2:
        run->now_ms += below(run, w / 4);
        break;
    case 3:
        run->now_ms += w - run->now_ms % w - 1 + below(run, 3);
        break;
    case 4:
        run->now_ms -= below(run, 20);
        break;
    default:
        run->now_ms += below(run, 3);
    }
}

static void run_history(uint64_t seed) {
    static const Algorithm large[]
        = {Algorithm::kFixed, Algorithm::kTokenBucket, Algorithm::kLeakyBucket};
    run_t run;

    memset(&run, 0, sizeof(run));
    run.seed = run.random = seed;
    run.policy.algorithm = large[below(&run, LENGTH(large))];
    run.policy.window_ms = random_window_ms(&run.random);
    run.now_ms = START_MS + random_next(&run.random) % YEAR_MS;
    run.nlimits = below(&run, 2) ? LENGTH(run.limits) : 1;
    snprintf(run.key, sizeof(run.key), "large:{%llu}", (unsigned long long)seed);

    if (run.policy.algorithm != Algorithm::kFixed && below(&run, 2)) {
        run.policy.burst = (uint32_t)random_scale(&run.random, 1, UINT32_MAX);
    }

    for (unsigned i = 0; i < run.nlimits; i++) {
        run.limits[i] = draw_limit(&run);
    }

    for (unsigned i = 0; i < HISTORY_STEPS; i++) {
        uint64_t limit = run.limits[below(&run, run.nlimits)];

        pass(&run);
        request(&run, limit, draw_cost(&run, limit), below(&run, 4) ? 1 : 1 + below(&run, 5),
                below(&run, 16) == 0);
    }
}

static void decides_as_exact_numbers(void **state) {
    const char *seed = getenv("SEED");

    (void)state;

    for (uint64_t i = 0; i < (seed ? 1 : HISTORIES); i++) {
        run_history(seed ? strtoull(seed, NULL, 10) : i);
    }
}

/* Returns the sum of the counts of a counter's parts, or of a fixed window, after a request. */
static long long counted_after(Algorithm algorithm, unsigned precision, uint64_t cost,
                               uint64_t now_ms) {
    auto *reply = static_cast<redisReply *>(redisCommand(
        server.context, "EVALSHA %s 1 k 1 %d 60000 1000000000 %u %llu 0 1 1 1 %llu", script_sha[0],
        number_of(algorithm), precision, (unsigned long long)cost, (unsigned long long)now_ms));
    auto sum = (long long)cost;

    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->element[1]->integer, 1);

    for (size_t i = algorithm == Algorithm::kFixed ? 3 : 6; i < reply->elements; i++) {
        sum += reply->element[i]->integer;
    }

    freeReplyObject(reply);
    return sum;
}

/* Counts that need more than three bytes have seven. */
static void counts_become_wide(void **state) {
    static const struct {
        Algorithm algorithm;
        unsigned precision;
    } kinds[] = {{Algorithm::kCounter, 0},
                 {Algorithm::kCounter, 1},
                 {Algorithm::kCounter, 7},
                 {Algorithm::kFixed, 0}};
    static const struct {
        uint64_t cost, after_ms;
    } requests[] = {{16777215, 0}, {1, 0}, {5, 0}, {16777000, 29000}, {300, 29000}, {0, 29000}};

    (void)state;

    for (const auto &kind : kinds) {
        long long sum = 0;

        forget_all();
        for (const auto &request : requests) {
            uint64_t now_ms = START_MS - START_MS % 60000 + request.after_ms;

            sum += (long long)request.cost;
            assert_int_equal(counted_after(kind.algorithm, kind.precision, request.cost, now_ms),
                             sum);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_become_wide),
        cmocka_unit_test(decides_as_exact_numbers),
    };

    return cmocka_run_group_tests_name("redis large", tests, start, stop);
}
