/* Copyright (C) the limit_sliding authors */

/*
 * Where the minutes of a counter begin is chance, so everything is measured by
 * replays from each second of a minute.
 */

#include "accuracy.hpp"

#include <math.h>
#include <stdlib.h>

uint64_t starts = 60;

static void spread(spread_t *s, uint64_t start_s, double part, double whole) {
    double percent = 100 * part / whole;

    if (start_s == 0) { *s = (spread_t){0, percent, percent}; }

    s->mean += percent / (double)starts;
    s->least = fmin(s->least, percent);
    s->most = fmax(s->most, percent);
}

static Policy policy_of(const algorithm_t *a) {
    Policy policy = {0};

    policy.window_ms = MINUTE_MS;
    policy.algorithm = a->algorithm;
    policy.precision = a->precision;
    policy.strict = a->strict;

    return policy;
}

decisions_t measure_decisions(const trace_t *trace, const algorithm_t *a, uint32_t limit,
                              trace_judge_t judge) {
    Policy policy = policy_of(a);
    decisions_t d;
    trace_errors_t e = {};

    for (uint64_t s = 0; s < starts; s++) {
        trace_count_errors(trace, &policy, limit, 1000 * s, judge, &e);

        spread(&d.wrong, s, (double)(e.over + e.under), (double)e.requests);
        spread(&d.over, s, (double)e.over, (double)e.requests);
        spread(&d.under, s, (double)e.under, (double)e.requests);
    }

    d.rejected = 100 * (double)e.rejected / (double)e.requests;

    return d;
}

rates_t measure_rates(const trace_t *trace, const algorithm_t *a, uint32_t limit) {
    Policy policy = policy_of(a);
    trace_rate_errors_t e[TRACE_RATES];
    rates_t r;

    for (uint64_t s = 0; s < starts; s++) {
        trace_sum_rate_errors(trace, &policy, limit, 1000 * s, e);

        for (size_t i = 0; i < TRACE_RATES; i++) {
            spread(&r.of[i], s, e[i].sum, (double)e[i].n);
        }
    }

    return r;
}

/*
 * The most requests that each client has sent in a minute, whatever the policy
 * would have rejected.  The caller frees it.
 */
static uint32_t *reach(const trace_t *trace, const Policy *policy) {
    uint32_t *most = static_cast<uint32_t *>(zeroed(trace->clients, sizeof(*most)));
    trace_replay_t replay;

    trace_start(&replay, trace, policy, TRACE_NO_LIMIT, 0, TRACE_SAME_HISTORY);

    while (trace_next(&replay)) {
        if (replay.real + 1 > most[replay.client]) { most[replay.client] = replay.real + 1; }

        trace_decide(&replay);
    }

    trace_stop(&replay);

    return most;
}

static void count_clients(trace_replay_t *replay, const uint32_t *reached, clients_t *c) {
    uint64_t n = replay->trace->clients;
    char *limited = static_cast<char *>(zeroed(n, 1));

    while (trace_next(replay)) {
        limited[replay->client] |= !trace_decide(replay);
    }

    for (uint64_t i = 0; i < n; i++) {
        double above = 100 * ((double)reached[i] / replay->limit - 1);

        c->above += above > 0;
        c->missed += above > 0 && !limited[i];
        c->unfounded += above <= 0 && limited[i];

        if (!limited[i]) { c->furthest = fmax(c->furthest, above); }
    }

    free(limited);
}

clients_t measure_clients(const trace_t *trace, const algorithm_t *a, uint32_t limit) {
    Policy policy = policy_of(a);
    uint32_t *reached = reach(trace, &policy);
    clients_t c = {0};
    trace_replay_t replay;

    for (uint64_t s = 0; s < starts; s++) {
        trace_start(&replay, trace, &policy, limit, 1000 * s, TRACE_SAME_HISTORY);
        count_clients(&replay, reached, &c);
        trace_stop(&replay);
    }

    free(reached);

    c.above /= (double)starts;
    c.missed /= (double)starts;
    c.unfounded /= (double)starts;

    return c;
}

unsigned long long senders(const trace_t *trace) {
    char *sent = static_cast<char *>(zeroed(trace->clients, 1));
    unsigned long long n = 0;

    for (size_t i = 0; i < trace->n; i++) {
        n += !sent[trace->request[i].client];
        sent[trace->request[i].client] = 1;
    }

    free(sent);

    return n;
}

trace_t merged(const trace_t *trace) {
    trace_t one = {trace->n, 1, NULL};

    one.request = static_cast<trace_request_t *>(zeroed(trace->n, sizeof(*one.request)));

    for (size_t i = 0; i < trace->n; i++) {
        one.request[i].at_ms = trace->request[i].at_ms;
    }

    return one;
}

void cell_spread(table_t *table, const spread_t *s) {
    table_cell(table, "%.3f (%.3f .. %.3f)", s->mean, s->least, s->most);
}

void *zeroed(size_t n, size_t bytes) {
    void *memory = calloc(n, bytes);

    if (memory == NULL) { abort(); }

    return memory;
}
