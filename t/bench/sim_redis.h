/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * What Redis knows of one key, by the core's own decisions, which are those of
 * the script (t/unit/redis_script_test.c).
 */

#ifndef LIMIT_SLIDING_BENCH_SIM_REDIS_H
#define LIMIT_SLIDING_BENCH_SIM_REDIS_H

#include "core/limiter.h"
#include "redis/logic/remote.h"

typedef struct {
    const limit_sliding_policy_t *policy;
    uint32_t                      limit;
    limit_sliding_state_t         state;
    limit_sliding_state_t         judged;     /* of what was really admitted */
    uint64_t                      window;     /* that of the counts */
    int64_t                       counts[2];  /* the window before it, it */
} redis_t;

typedef struct {
    uint32_t                granted;
    limit_sliding_remote_t  remote;
    int64_t                 values[2];
} redis_answer_t;

/*
 * A key that has had so many requests a second for long, in a window as of that
 * number, after so many milliseconds of it.
 */
void redis_begin(redis_t *redis, const limit_sliding_policy_t *policy,
    uint32_t limit, double rate, uint64_t window, uint64_t elapsed_ms);

/* Grants as many units as fit, and returns them. */
uint32_t redis_ask(redis_t *redis, uint64_t now_ms, uint32_t units,
    redis_answer_t *answer);

/* The same of one unit, without an answer to describe. */
int redis_ask_one(redis_t *redis, uint64_t now_ms);

/* Describes the key to a request that comes after all that were granted. */
void redis_describe(const redis_t *redis, const redis_answer_t *answer,
    limit_sliding_verdict_t *verdict);

/*
 * So many requests are admitted: 1 if a limiter does, too, that knows all that
 * were before, when they were.
 */
int redis_judge(redis_t *redis, uint64_t now_ms, uint32_t units);

#endif
