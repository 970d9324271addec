/* Copyright (C) the limit_sliding authors */

/* The parts of accuracy.cpp. */

#pragma once

#include <stdio.h>

#include "table.hpp"
#include "trace.hpp"

#define MINUTE_MS 60000
#define CLIENT_LIMIT 10 /* a minute, if nothing else is said */

/* ---- accuracy_measure.cpp: replays from seconds of a minute, by default each ---- */

extern uint64_t starts;

struct algorithm_t {
    const char *name;
    Algorithm algorithm;
    uint32_t precision;
    bool strict;
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

void cell_spread(table_t *table, const spread_t *s);

/* ---- accuracy_promises.cpp: the error of the default, by limit ---- */

#define PROMISES 6
#define PROMISED_100 3      /* the limit of 100 */
#define PROMISED_WRONG 0.35 /* of decisions under CLIENT_LIMIT, in percent */

/* Prints a table of errors of the rate; those of the first algorithm go to the
 * caller, too. */
void report_promises(const trace_t *trace, const algorithm_t *algorithms, size_t n,
                     double first[PROMISES]);

/* Tells what is worse than promised of these errors, and of wrong decisions;
 * returns how much of it there is. */
int broken_promises(const double rates[PROMISES], double wrong);

/* ---- accuracy_plot.cpp: blocks of figures for plots ---- */

void plot_print(const trace_t *trace, FILE *out);
