/* Copyright (C) the limit_sliding authors */

/* The parts of accuracy.c. */

#pragma once

#include <stdio.h>

#include "table.hpp"
#include "trace.hpp"

#define MINUTE_MS 60000
#define CLIENT_LIMIT 10 /* a minute, if nothing else is said */

/* ---- accuracy_measure.c: replays from each second of a minute ---- */

#define STARTS 60

struct algorithm_t {
    const char *name;
    Algorithm algorithm;
    uint32_t precision;
};

/* Of all starts, in percent. */
struct spread_t {
    double mean;
    double least;
    double most;
};

/* Of all requests, in percent. */
struct decisions_t {
    double rejected; /* of the last start */
    spread_t wrong;
    spread_t over;
    spread_t under;
};

struct rates_t {
    spread_t of[TRACE_RATES];
};

/* Clients, in the mean over all starts. */
struct clients_t {
    double above;     /* that come above the limit */
    double missed;    /* of these, never rejected */
    double furthest;  /* of these, above it in percent of it */
    double unfounded; /* never above it, but rejected */
};

decisions_t measure_decisions(const trace_t *trace, const algorithm_t *a, uint32_t limit,
                              trace_judge_t judge);

rates_t measure_rates(const trace_t *trace, const algorithm_t *a, uint32_t limit);

clients_t measure_clients(const trace_t *trace, const algorithm_t *a, uint32_t limit);

/* Clients that send anything. */
unsigned long long senders(const trace_t *trace);

/* The trace as if of one client; for trace_free(). */
trace_t merged(const trace_t *trace);

/* Zeroed memory, or the end. */
void *zeroed(size_t n, size_t bytes);

/* ---- accuracy_plot.c: blocks of figures for accuracy.gp ---- */

void plot_print(const trace_t *trace, FILE *out);
