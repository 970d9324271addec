/* Copyright (C) the limit_sliding authors */

/* A day of real traffic (t/data/README.md) through the core. TRACE_PATH, which the build
 * defines, names the unpacked trace. */

#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/limiter/limiter.hpp"

using namespace limit_sliding;

struct trace_request_t {
    uint64_t at_ms; /* whole seconds */
    uint64_t client;
};

struct trace_t {
    size_t n;
    uint64_t clients; /* their numbers are below it */
    trace_request_t *request;
};

/* Returns 1, or 0 if the file cannot be read, with errno set. */
int trace_read(trace_t *trace, const char *path);

void trace_free(trace_t *trace);

/*
 * Which exact log judges the core: one with a history of its own, which has
 * admitted other requests once the two have disagreed; or one that knows what
 * the core has admitted, and judges each decision by itself.
 */
enum trace_judge_t { TRACE_OWN_HISTORY = 0, TRACE_SAME_HISTORY };

/*
 * A replay of the trace, request by request:
 *
 *     trace_start(&replay, ...);
 *     while (trace_next(&replay)) {
 *         trace_estimate(&replay), if that is of interest
 *         trace_decide(&replay)
 *     }
 *     trace_stop(&replay);
 */
typedef struct trace_log_s trace_log_t;

struct trace_replay_t {
    const trace_t *trace;
    const Policy *policy;
    uint32_t limit;
    trace_judge_t judge;
    uint64_t start_ms;
    trace_log_t *log;
    void *memory;
    Zone *zone;
    size_t n; /* requests begun */

    /* of the request that trace_next() has come to */
    uint64_t client;
    uint64_t now_ms;
    uint32_t real; /* requests in the client's last window, by the judge */
};

/*
 * The trace's first request is at start_ms, and each client may do `limit` a
 * window.  What the pointers point to must outlive the replay.
 */
void trace_start(trace_replay_t *replay, const trace_t *trace, const Policy *policy, uint32_t limit,
                 uint64_t start_ms, trace_judge_t judge);

/* Returns 0 if there are no more requests. */
int trace_next(trace_replay_t *replay);

/*
 * What the core takes for its client's requests in the last window: exact to
 * 1/1000 request, and rounded up there.
 */
double trace_estimate(const trace_replay_t *replay);

/* Would the judge admit the request? */
int trace_should_admit(const trace_replay_t *replay);

/* Does the core?  Once for each request. */
int trace_decide(trace_replay_t *replay);

void trace_stop(trace_replay_t *replay);

/* Decisions, of all in the trace. */
struct trace_errors_t {
    uint64_t requests;
    uint64_t rejected; /* by the core */
    uint64_t over;     /* admitted, and should not have been */
    uint64_t under;    /* rejected, and should not have been */
};

void trace_count_errors(const trace_t *trace, const Policy *policy, uint32_t limit,
                        uint64_t start_ms, trace_judge_t judge, trace_errors_t *errors);

/*
 * |estimate - real| / real, both of what the core has admitted in a client's
 * last window when it comes with another request, which is not counted itself
 * unless said otherwise.
 */
enum trace_rate_t {
    TRACE_RATE_OTHERS = 0, /* requests that find others in the window */
    TRACE_RATE_BUSY,       /* ... TRACE_BUSY or more */
    TRACE_RATE_ALL,        /* all requests, each of them counted as well */
    TRACE_RATE_CLIENTS,    /* clients: means of their TRACE_RATE_OTHERS */
    TRACE_RATES
};

#define TRACE_BUSY 10

/* A limit at which nothing is rejected. */
#define TRACE_NO_LIMIT kNarrowMax

struct trace_rate_errors_t {
    uint64_t n; /* requests, or clients */
    double sum; /* of their errors */
};

void trace_sum_rate_errors(const trace_t *trace, const Policy *policy, uint32_t limit,
                           uint64_t start_ms, trace_rate_errors_t errors[TRACE_RATES]);
