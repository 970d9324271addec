/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * The sliding window counter the naive way: it keeps what the core does not, a
 * log of every admitted request, and counts anew each time, in 128 bits.
 */

#ifndef LIMIT_SLIDING_UNIT_ORACLE_H
#define LIMIT_SLIDING_UNIT_ORACLE_H

#include <stddef.h>
#include <stdint.h>

#define LOG_LENGTH 400

__extension__ typedef unsigned __int128 wide_t;

/* One key under one limit. */
typedef struct {
    uint64_t window_ms;
    size_t n;
    uint64_t at_ms[LOG_LENGTH];
    uint32_t cost[LOG_LENGTH];
} oracle_t;

/* Costs admitted in first_ms .. end_ms - 1. */
static inline uint64_t oracle_sum(const oracle_t *log, uint64_t first_ms,
                                  uint64_t end_ms)
{
    uint64_t total = 0;

    for (size_t i = log->n; i-- > 0;) {
        if (log->at_ms[i] + 2 * log->window_ms < first_ms) {
            break;
        }

        if (log->at_ms[i] >= first_ms && log->at_ms[i] < end_ms) {
            total += log->cost[i];
        }
    }

    return total;
}

/* A clock that is behind the key's latest window is at the start of that. */
static inline uint64_t oracle_clamp(const oracle_t *log, uint64_t now_ms)
{
    uint64_t latest_ms = log->n == 0 ? 0 : log->at_ms[log->n - 1];
    uint64_t start_ms = latest_ms - latest_ms % log->window_ms;

    return now_ms < start_ms ? start_ms : now_ms;
}

/* In request-milliseconds: 1/w of a request is one. */
static inline wide_t oracle_used(const oracle_t *log, uint64_t now_ms)
{
    uint64_t w = log->window_ms;
    uint64_t at_ms = oracle_clamp(log, now_ms);
    uint64_t start_ms = at_ms - at_ms % w;
    wide_t current = oracle_sum(log, start_ms, start_ms + w);
    wide_t previous
        = start_ms >= w ? oracle_sum(log, start_ms - w, start_ms) : 0;

    return previous * (start_ms + w - at_ms) + current * w;
}

static inline int oracle_fits(const oracle_t *log, uint64_t now_ms,
                              uint32_t limit, uint32_t cost)
{
    return oracle_used(log, now_ms) + (wide_t)cost * log->window_ms
           <= (wide_t)limit * log->window_ms;
}

static inline uint32_t oracle_left(const oracle_t *log, uint64_t now_ms,
                                   uint32_t limit)
{
    wide_t full = (wide_t)limit * log->window_ms;
    wide_t taken = oracle_used(log, now_ms);

    return taken >= full ? 0 : (uint32_t)((full - taken) / log->window_ms);
}

static inline uint64_t oracle_excess(const oracle_t *log, uint64_t now_ms,
                                     uint32_t limit, uint32_t cost)
{
    wide_t w = log->window_ms;
    wide_t wanted = oracle_used(log, now_ms) + cost * w;

    return wanted <= limit * w
               ? 0
               : (uint64_t)(((wanted - limit * w) * 1000 + w - 1) / w);
}

static inline void oracle_record(oracle_t *log, uint64_t now_ms, uint32_t cost)
{
    uint64_t at_ms = oracle_clamp(log, now_ms);

    if (cost != 0) {
        log->at_ms[log->n] = at_ms;
        log->cost[log->n++] = cost;
    }
}

#endif
