/* Copyright (C) the limit_sliding authors */

/* Random histories of requests, the same for every algorithm. */

#pragma once

#include <stdint.h>

#define HISTORY_LENGTH 200
#define HISTORY_KEYS 3

struct request_t {
    uint64_t now_ms;
    uint64_t key; /* 0 .. HISTORY_KEYS - 1 */
    uint32_t limit;
    uint32_t cost;
};

enum history_limits_t {
    HISTORY_ONE_LIMIT = 0,
    HISTORY_LIMIT_A_KEY,
    HISTORY_LIMIT_A_REQUEST,
    HISTORY_LIMITS
};

struct history_t {
    uint64_t seed;
    uint64_t window_ms;
    uint64_t offset_ms;
    uint32_t burst;
    uint32_t undelayed; /* as in Policy: none, half of the burst, or all */
    int is_steady;      /* the clock never steps back */
    int is_dense;       /* one key, in most milliseconds of a short window */
    history_limits_t limits;
    request_t request[HISTORY_LENGTH];
};

/* The same history for the same seed. */
void history_draw(history_t *history, uint64_t seed);
