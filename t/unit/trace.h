/*
 * Copyright (C) the limit_sliding authors
 */

/* A day of real traffic (t/data/README.md) through the core. */

#ifndef LIMIT_SLIDING_UNIT_TRACE_H
#define LIMIT_SLIDING_UNIT_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "limiter.h"

#define TRACE_PATH "t/data/nasa-http-1995-08-01.tsv"

typedef struct {
    uint64_t at_ms; /* whole seconds */
    uint64_t client;
} trace_request_t;

typedef struct {
    size_t n;
    uint64_t clients; /* their numbers are below it */
    trace_request_t *request;
} trace_t;

/* Returns 1, or 0 if the file cannot be read, with errno set. */
int trace_read(trace_t *trace, const char *path);

void trace_free(trace_t *trace);

/* Decisions, of all in the trace. */
typedef struct {
    uint64_t requests;
    uint64_t rejected; /* by the core */
    uint64_t over;     /* admitted, and should not have been */
    uint64_t under;    /* rejected, and should not have been */
} trace_errors_t;

/*
 * Which exact log judges the core: one with a history of its own, which has
 * admitted other requests once the two have disagreed; or one that knows what
 * the core has admitted, and judges each decision by itself.
 */
typedef enum { TRACE_OWN_HISTORY = 0, TRACE_SAME_HISTORY } trace_judge_t;

/*
 * Replays the trace, its first request at start_ms, with `limit` requests a
 * window for each client.
 */
void trace_replay(const trace_t *trace, const limit_sliding_policy_t *policy,
                  uint32_t limit, uint64_t start_ms, trace_judge_t judge,
                  trace_errors_t *errors);

#endif
