/* Copyright (C) the limit_sliding authors */

/*
 * One client's minutes, for accuracy.gp: of all clients the one that an exact
 * log rejects most requests of, and of its minutes those in which it does, or
 * of several such those with most requests.  The log and each counter meet it
 * alone, so that each has a history of its own.  Blocks of
 *
 *     second  admitted in the last minute  estimated
 *
 * for each counter, and before them, for the log and then for each counter,
 * blocks of a line for each request,
 *
 *     second  place  decision
 *
 * where requests of the same few seconds are stacked, and a decision is a sum
 * of what it says and how the log differs.
 *
 * Then, for accuracy_limits.gp, a block of lines
 *
 *     limit  parts of a window by default  errors of a rate in percent
 *
 * with an error for each of drawn[], and one of the same with wrong decisions.
 */

#include "accuracy.hpp"

#include <stdlib.h>
#include <string.h>

#include "core/rules/counter_kinds.hpp"

#define WINDOW_S (MINUTE_MS / 1000)
#define SHOWN_S (8 * WINDOW_S)
#define STACKED_S 5

#define REJECTED 1
#define DIFFERENT 2

static const Policy policies[]
    = {{.window_ms = MINUTE_MS, .algorithm = Algorithm::kLog},
       {.window_ms = MINUTE_MS, .algorithm = Algorithm::kCounter},
       {.window_ms = MINUTE_MS, .algorithm = Algorithm::kCounter, .precision = 1}};

#define POLICIES (sizeof(policies) / sizeof(policies[0]))

static const algorithm_t drawn[] = {{"counter", Algorithm::kCounter, 0, false},
                                    {"counter strict", Algorithm::kCounter, 0, true},
                                    {"counter precision=1", Algorithm::kCounter, 1, false},
                                    {"counter precision=10", Algorithm::kCounter, 10, false}};

/* The largest limits of all kinds, and others between them. */
static const uint32_t drawn_limits[]
    = {2, 3, 5, 7, 10, 15, 20, 31, 63, 127, 255, 500, 1000, 2047, 5000, 16383, 16384, 50000};

/* The busiest client sends 29 in a minute. */
#define DECIDING_MAX 20

struct client_t {
    trace_t trace;   /* of one client */
    uint64_t from_s; /* what is shown: a minute begins there */
};

/*
 * Counts what the log rejects; a rejected request counts for more than all that
 * are admitted.
 */
static void weigh(const trace_t *trace, uint64_t *of_client, uint64_t *of_second) {
    trace_replay_t replay;

    trace_start(&replay, trace, &policies[0], CLIENT_LIMIT, 0, TRACE_OWN_HISTORY);

    while (trace_next(&replay)) {
        uint64_t weight = trace_decide(&replay) ? 1 : trace->n;

        of_client[replay.client] += weight;
        of_second[replay.now_ms / 1000] += weight;
    }

    trace_stop(&replay);
}

static uint64_t sum(const uint64_t *counts, size_t n) {
    uint64_t total = 0;

    while (n > 0) {
        total += counts[--n];
    }

    return total;
}

/* The trace of one client, as number 0. */
static trace_t only(const trace_t *trace, uint64_t client) {
    trace_t one = {.clients = 1};

    one.request = static_cast<trace_request_t *>(zeroed(trace->n, sizeof(*one.request)));

    for (size_t i = 0; i < trace->n; i++) {
        if (trace->request[i].client == client) {
            one.request[one.n++].at_ms = trace->request[i].at_ms;
        }
    }

    return one;
}

static client_t choose(const trace_t *trace) {
    uint64_t seconds = trace->request[trace->n - 1].at_ms / 1000 + SHOWN_S;
    uint64_t *of_second = static_cast<uint64_t *>(zeroed(seconds, sizeof(*of_second)));
    uint64_t *of_client = static_cast<uint64_t *>(zeroed(trace->clients, sizeof(*of_client)));
    uint64_t most = 0;
    client_t client = {0};

    weigh(trace, of_client, of_second);

    for (uint64_t i = 0; i < trace->clients; i++) {
        most = of_client[i] > of_client[most] ? i : most;
    }

    client.trace = only(trace, most);
    memset(of_second, 0, seconds * sizeof(*of_second));
    weigh(&client.trace, of_client, of_second);
    most = 0;

    for (uint64_t s = 0; s + SHOWN_S <= seconds; s += WINDOW_S) {
        uint64_t n = sum(&of_second[s], SHOWN_S);

        if (n > most) {
            most = n;
            client.from_s = s;
        }
    }

    free(of_second);
    free(of_client);

    return client;
}

static void print_decisions(const client_t *client, const Policy *policy, FILE *out) {
    trace_replay_t replay;
    uint64_t bin = 0;
    unsigned place = 0;

    trace_start(&replay, &client->trace, policy, CLIENT_LIMIT, 0, TRACE_OWN_HISTORY);

    while (trace_next(&replay)) {
        uint64_t second = replay.now_ms / 1000 - client->from_s;
        int should_be = trace_should_admit(&replay);
        int admitted = trace_decide(&replay);

        if (second >= SHOWN_S) { continue; /* before that it is a huge number */ }

        place = second / STACKED_S == bin ? place + 1 : 1;
        bin = second / STACKED_S;

        fprintf(out, "%.1f %u %d\n", ((double)bin + 0.5) * STACKED_S, place,
                (admitted ? 0 : REJECTED) + (admitted == should_be ? 0 : DIFFERENT));
    }

    trace_stop(&replay);
    fprintf(out, "\n\n");
}

/* A second's figures are those after its requests. */
static void print_second(const trace_replay_t *replay, const uint32_t *admitted, uint64_t from_s,
                         uint64_t second, FILE *out) {
    trace_replay_t then = *replay;
    uint32_t last_minute = 0;

    for (uint64_t s = 0; s < WINDOW_S && s <= second; s++) {
        last_minute += admitted[second - s];
    }

    then.now_ms = 1000 * second;

    if (second >= from_s && second < from_s + SHOWN_S) {
        fprintf(out, "%d %u %.3f\n", (int)(second - from_s), last_minute, trace_estimate(&then));
    }
}

static void print_rates(const client_t *client, const Policy *policy, FILE *out) {
    uint64_t end_s = client->from_s + SHOWN_S;
    uint32_t *admitted = static_cast<uint32_t *>(zeroed(end_s, sizeof(*admitted)));
    uint64_t second = 0;
    trace_replay_t replay;

    trace_start(&replay, &client->trace, policy, CLIENT_LIMIT, 0, TRACE_OWN_HISTORY);

    while (trace_next(&replay) && replay.now_ms < 1000 * end_s) {
        for (; second < replay.now_ms / 1000; second++) {
            print_second(&replay, admitted, client->from_s, second, out);
        }

        admitted[second] += trace_decide(&replay) != 0;
    }

    for (; second < end_s; second++) {
        print_second(&replay, admitted, client->from_s, second, out);
    }

    trace_stop(&replay);
    free(admitted);
    fprintf(out, "\n\n");
}

static double rate_error(const trace_t *trace, const algorithm_t *a, uint32_t limit) {
    return measure_rates(trace, a, limit).of[TRACE_RATE_OTHERS].mean;
}

static double wrong(const trace_t *trace, const algorithm_t *a, uint32_t limit) {
    return measure_decisions(trace, a, limit, TRACE_OWN_HISTORY).wrong.mean;
}

static void print_by_limit(const trace_t *trace, uint32_t most, FILE *out,
                           double (*measure)(const trace_t *, const algorithm_t *, uint32_t)) {
    for (uint32_t limit : drawn_limits) {
        if (limit > most) { break; }

        fprintf(out, "%u %u", limit, counter_parts(limit));

        for (const algorithm_t &a : drawn) {
            fprintf(out, " %.4f", measure(trace, &a, limit));
        }

        fprintf(out, "\n");
    }

    fprintf(out, "\n\n");
}

void plot_print(const trace_t *trace, FILE *out) {
    client_t client = choose(trace);

    for (size_t i = 0; i < POLICIES; i++) {
        print_decisions(&client, &policies[i], out);
    }

    for (size_t i = 1; i < POLICIES; i++) {
        print_rates(&client, &policies[i], out);
    }

    trace_free(&client.trace);

    print_by_limit(trace, UINT32_MAX, out, rate_error);
    print_by_limit(trace, DECIDING_MAX, out, wrong);
}
