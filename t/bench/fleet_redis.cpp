/* Copyright (C) the limit_sliding authors */

#include "fleet_redis.hpp"

#include "pure.hpp"

#include <stdlib.h>
#include <string.h>

void redis_begin(redis_t *redis, const Policy *policy, uint32_t limit, double rate, uint64_t window,
                 uint64_t elapsed_ms) {
    double before = rate * (double)policy->window_ms / 1000;
    double since = rate * (double)elapsed_ms / 1000;
    uint64_t start_ms = window * policy->window_ms;
    redis_answer_t answer;

    memset(redis, 0, sizeof(redis_t));

    redis->policy = policy;
    redis->limit = limit;

    redis_ask(redis, start_ms - policy->window_ms, (uint32_t)(before < limit ? before : limit),
              &answer);
    redis_ask(redis, start_ms + elapsed_ms, (uint32_t)(since < limit ? since : limit), &answer);

    redis->judged = redis->state;
}

static void roll(redis_t *redis, uint64_t now_ms) {
    uint64_t window = now_ms / redis->policy->window_ms;

    if (window == redis->window) { return; }

    redis->counts[0] = window == redis->window + 1 ? redis->counts[1] : 0;
    redis->counts[1] = 0;
    redis->window = window;
}

/* What a bucket has used runs off. */
static void run_off(redis_t *redis, uint64_t now_ms) {
    uint64_t gone = redis->limit * (now_ms - redis->level_ms);

    redis->level -= gone < redis->level ? gone : redis->level;
    redis->level_ms = now_ms;
}

/* Leaves in the answer what the script would tell before it grants anything. */
static void tell(redis_t *redis, uint64_t now_ms, redis_answer_t *answer) {
    answer->remote = RemoteState{};
    answer->remote.now_ms = now_ms;
    answer->remote.limit = redis->limit;
    answer->remote.values = answer->values;

    if (redis->policy->algorithm == Algorithm::kTokenBucket) {
        run_off(redis, now_ms);
        answer->values[0] = (int64_t)(redis->level / redis->policy->window_ms);
        answer->values[1] = (int64_t)(redis->level % redis->policy->window_ms);
        return;
    }

    roll(redis, now_ms);
    answer->values[0] = 1;
    answer->values[1] = (int64_t)redis->window;
    answer->values[2] = 0;
    answer->values[3] = redis->counts[0];
    answer->values[4] = redis->counts[1];
}

static int take(redis_t *redis, State *state, uint64_t now_ms, uint32_t units) {
    return pure::admit(*redis->policy, *state, now_ms, redis->limit, units, state);
}

uint32_t redis_ask(redis_t *redis, uint64_t now_ms, uint32_t units, redis_answer_t *answer) {
    Verdict verdict;

    tell(redis, now_ms, answer);

    if (units && !take(redis, &redis->state, now_ms, units)) {
        verdict = pure::describe(*redis->policy, redis->state, now_ms, redis->limit, units);
        units = verdict.remaining;

        if (units && !take(redis, &redis->state, now_ms, units)) { abort(); }
    }

    redis->counts[1] += units;
    redis->level += units * redis->policy->window_ms;
    answer->granted = units;

    return units;
}

int redis_ask_one(redis_t *redis, uint64_t now_ms) { return take(redis, &redis->state, now_ms, 1); }

void redis_describe(const redis_t *redis, const redis_answer_t *answer, Verdict *verdict) {
    *verdict = answer->remote.describe(*redis->policy, 1, answer->granted, 0, 0);
}

int redis_judge(redis_t *redis, uint64_t now_ms, uint32_t units) {
    return take(redis, &redis->judged, now_ms, units);
}
