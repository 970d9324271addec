/*
 * Copyright (C) the limit_sliding authors
 */

/* The parts of accuracy.c. */

#ifndef LIMIT_SLIDING_BENCH_ACCURACY_H
#define LIMIT_SLIDING_BENCH_ACCURACY_H

#include <stdio.h>

#include "table.h"
#include "trace.h"

#define MINUTE_MS     60000
#define CLIENT_LIMIT  10         /* a minute, if nothing else is said */


/* ---- accuracy_measure.c: replays from each second of a minute ---- */

#define STARTS        60

typedef struct {
    const char                *name;
    limit_sliding_algorithm_t  algorithm;
    uint32_t                   precision;
} algorithm_t;

/* Of all starts, in percent. */
typedef struct {
    double  mean;
    double  least;
    double  most;
} spread_t;

/* Of all requests, in percent. */
typedef struct {
    double    rejected;          /* of the last start */
    spread_t  wrong;
    spread_t  over;
    spread_t  under;
} decisions_t;

typedef struct {
    spread_t  of[TRACE_RATES];
} rates_t;

/* Clients, in the mean over all starts. */
typedef struct {
    double  above;               /* that come above the limit */
    double  missed;              /* of these, never rejected */
    double  furthest;            /* of these, above it in percent of it */
    double  unfounded;           /* never above it, but rejected */
} clients_t;

decisions_t measure_decisions(const trace_t *trace, const algorithm_t *a,
    uint32_t limit, trace_judge_t judge);

rates_t measure_rates(const trace_t *trace, const algorithm_t *a,
    uint32_t limit);

clients_t measure_clients(const trace_t *trace, const algorithm_t *a,
    uint32_t limit);

/* Clients that send anything. */
unsigned long long senders(const trace_t *trace);

/* The trace as if of one client; for trace_free(). */
trace_t merged(const trace_t *trace);

/* Zeroed memory, or the end. */
void *zeroed(size_t n, size_t bytes);


/* ---- accuracy_plot.c: blocks of figures for accuracy.gp ---- */

void plot_print(const trace_t *trace, FILE *out);


#endif
