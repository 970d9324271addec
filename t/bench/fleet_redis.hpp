/* Copyright (C) the limit_sliding authors */

/*
 * What Redis knows of one key, by the core's own decisions, which are those of
 * the script (t/unit/redis_script_test.cpp).
 */

#pragma once

#include "core/limiter/limiter.hpp"
#include "redis/protocol/remote_state.hpp"

using namespace limit_sliding;

struct redis_t {
    const Policy *policy;
    uint32_t limit;
    State state;
    State judged;      /* of what was really admitted */
    uint64_t window;   /* that of the counts */
    int64_t counts[2]; /* the window before it, it */
    uint64_t level;    /* of a bucket, in 1/window_ms of a request */
    uint64_t level_ms; /* as of then */
};

struct redis_answer_t {
    uint32_t granted;
    RemoteState remote;
    int64_t values[5];
};

/*
 * A key that has had so many requests a second for long, in a window as of that
 * number, after so many milliseconds of it.
 */
void redis_begin(redis_t *redis, const Policy *policy, uint32_t limit, double rate, uint64_t window,
                 uint64_t elapsed_ms);

/* Grants as many units as fit, and returns them. */
uint32_t redis_ask(redis_t *redis, uint64_t now_ms, uint32_t units, redis_answer_t *answer);

/* The same of one unit, without an answer to describe. */
int redis_ask_one(redis_t *redis, uint64_t now_ms);

/* Describes the key to a request that comes after all that were granted. */
void redis_describe(const redis_t *redis, const redis_answer_t *answer, Verdict *verdict);

/*
 * So many requests are admitted: 1 if a limiter does, too, that knows all that
 * were before, when they were.
 */
int redis_judge(redis_t *redis, uint64_t now_ms, uint32_t units);
