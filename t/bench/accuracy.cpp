/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * How often each algorithm decides otherwise than an exact sliding window
 * would, and how far its estimate of a client's rate is off, on real requests
 * (t/data/README.md).
 *
 *     accuracy [--data FILE]
 *
 * prints tables and what they say, in Markdown; to the file it writes a client's
 * minutes, for accuracy.gp.
 */

#include "accuracy.hpp"

#include <stdlib.h>
#include <string.h>

#define ALGORITHMS 8
#define LOG 0 /* places of some in algorithms[] */
#define COUNTER 2
#define COUNTER_10 5

#define LIMITS 5
#define TEN 1 /* CLIENT_LIMIT's place in limits[] */
#define HOUR_MS 3600000.0

#define COMPARED 2 /* COUNTER and COUNTER_10 */

/* What Cloudflare has published of its counter, in percent. */
#define PEER_WRONG 0.003
#define PEER_RATE 6.0

static const algorithm_t algorithms[ALGORITHMS]
    = {{"log", Algorithm::kLog, 0},
       {"fixed", Algorithm::kFixed, 0},
       {"counter", Algorithm::kCounter, 1},
       {"counter precision=2", Algorithm::kCounter, 2},
       {"counter precision=5", Algorithm::kCounter, 5},
       {"counter precision=10", Algorithm::kCounter, 10},
       {"counter precision=30", Algorithm::kCounter, 30},
       {"counter precision=60", Algorithm::kCounter, 60}};

/* The busiest client sends 29 in a minute. */
static const uint32_t limits[LIMITS] = {5, CLIENT_LIMIT, 15, 20, 25};

static trace_t clients; /* the trace */
static trace_t server;  /* the same as if of one client */
static decisions_t found[ALGORITHMS][LIMITS];
static clients_t judged[LIMITS][COMPARED];

/* ---- tables ---- */

static void head(table_t *table, const char *const *columns, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        table_cell(table, "%s", columns[i]);
    }

    table_end_row(table);
}

static void cell_spread(table_t *table, const spread_t *s)
{
    table_cell(table, "%.3f (%.3f .. %.3f)", s->mean, s->least, s->most);
}

static void report_judged(trace_judge_t judge)
{
    static const char *const columns[]
        = {"", "wrong", "admitted", "rejected", "lowest", "highest"};
    table_t table = {0};

    head(&table, columns, 6);

    for (size_t i = 0; i < ALGORITHMS; i++) {
        decisions_t d
            = measure_decisions(&clients, &algorithms[i], CLIENT_LIMIT, judge);

        table_cell(&table, "`%s`", algorithms[i].name);
        table_cell(&table, "%.3f", d.wrong.mean);
        table_cell(&table, "%.3f", d.over.mean);
        table_cell(&table, "%.3f", d.under.mean);
        table_cell(&table, "%.3f", d.wrong.least);
        table_cell(&table, "%.3f", d.wrong.most);
        table_end_row(&table);
    }

    table_print(&table);
}

/* Leaves what it has found to report_decisions(). */
static void report_limits(void)
{
    table_t table = {0};

    for (size_t a = 0; a < ALGORITHMS; a++) {
        for (size_t i = 0; i < LIMITS; i++) {
            found[a][i] = measure_decisions(&clients, &algorithms[a], limits[i],
                                            TRACE_OWN_HISTORY);
        }
    }

    table_cell(&table, "a minute");

    for (size_t i = 0; i < LIMITS; i++) {
        table_cell(&table, "%u", limits[i]);
    }

    table_end_row(&table);
    table_cell(&table, "rejected by `log`");

    for (size_t i = 0; i < LIMITS; i++) {
        table_cell(&table, "%.3f", found[LOG][i].rejected);
    }

    table_end_row(&table);

    for (size_t a = 1; a < ALGORITHMS; a++) {
        table_cell(&table, "`%s`", algorithms[a].name);

        for (size_t i = 0; i < LIMITS; i++) {
            cell_spread(&table, &found[a][i].wrong);
        }

        table_end_row(&table);
    }

    table_print(&table);
}

static void report_clients(void)
{
    static const char *const columns[]
        = {"", "above", "missed", "furthest above", "unfounded"};
    static const size_t compared[] = {COUNTER, COUNTER_10};
    table_t table = {0};

    head(&table, columns, 5);

    for (size_t i = 0; i < LIMITS * COMPARED; i++) {
        const algorithm_t *a = &algorithms[compared[i % COMPARED]];
        uint32_t limit = limits[i / COMPARED];
        clients_t *v = &judged[i / COMPARED][i % COMPARED];

        *v = measure_clients(&clients, a, limit);

        table_cell(&table, "`%s`, %u a minute", a->name, limit);
        table_cell(&table, "%.0f", v->above);
        table_cell(&table, "%.1f", v->missed);
        table_cell(&table, "%.0f%%", v->furthest);
        table_cell(&table, "%.1f", v->unfounded);
        table_end_row(&table);
    }

    table_print(&table);
}

/* The rates of the plain counter and of precision=10 go to the caller, too. */
static void report_rates(rates_t *counter, rates_t *counter_10)
{
    static const char *const columns[] = {"",
                                          "others",
                                          "10 others or more",
                                          "all",
                                          "by client",
                                          "others, 10 a minute",
                                          "others, one client"};
    table_t table = {0};

    head(&table, columns, 7);

    for (size_t i = 0; i < ALGORITHMS; i++) {
        const algorithm_t *a = &algorithms[i];
        rates_t r = measure_rates(&clients, a, TRACE_NO_LIMIT);
        rates_t limited = measure_rates(&clients, a, CLIENT_LIMIT);
        rates_t one = measure_rates(&server, a, TRACE_NO_LIMIT);

        table_cell(&table, "`%s`", a->name);
        cell_spread(&table, &r.of[TRACE_RATE_OTHERS]);
        cell_spread(&table, &r.of[TRACE_RATE_BUSY]);
        cell_spread(&table, &r.of[TRACE_RATE_ALL]);
        cell_spread(&table, &r.of[TRACE_RATE_CLIENTS]);
        cell_spread(&table, &limited.of[TRACE_RATE_OTHERS]);
        cell_spread(&table, &one.of[TRACE_RATE_OTHERS]);
        table_end_row(&table);

        *counter = i == COUNTER ? r : *counter;
        *counter_10 = i == COUNTER_10 ? r : *counter_10;
    }

    table_print(&table);
}

/* ---- what they say ---- */

static void report_decisions(void)
{
    printf(
        "### Wrong decisions\n\n"
        "%.1f hours of NASA's web server on 1 August 1995, %zu requests of "
        "%llu\n"
        "clients, pages and images alike, in whole seconds (t/data). Each "
        "client may\n"
        "send %u a minute. Percent of all requests that are decided otherwise\n"
        "than by an exact log: *admitted* should have been rejected, "
        "*rejected*\n"
        "admitted. Means over replays from each second of a minute, with the "
        "lowest\n"
        "and highest of *wrong*.\n\n"
        "The exact log has a history of its own:\n\n",
        (double)clients.request[clients.n - 1].at_ms / HOUR_MS, clients.n,
        senders(&clients), CLIENT_LIMIT);

    report_judged(TRACE_OWN_HISTORY);

    printf("It knows what the algorithm has admitted, and judges each decision"
           " by itself:\n\n");

    report_judged(TRACE_SAME_HISTORY);

    printf("By other limits, with a history of its own, *wrong* and its lowest "
           "and\n"
           "highest:\n\n");

    report_limits();

    printf("Clients, in the mean over all replays: those that come *above* the "
           "limit\n"
           "at all, those of them that are never rejected, and those that "
           "never come\n"
           "above it but are rejected; and, of all replays, by how much of the "
           "limit\n"
           "the furthest of those that are never rejected is above it:\n\n");

    report_clients();
}

static void report_peer(const rates_t *counter, const rates_t *counter_10)
{
    double others = counter->of[TRACE_RATE_OTHERS].mean;
    double all = counter->of[TRACE_RATE_ALL].mean;
    const clients_t *ours = &judged[TEN][0];
    const clients_t *ours_10 = &judged[TEN][1];

    printf("### Beside Cloudflare's figures\n\n"
           "Cloudflare counts as `counter` does, and has published of 400 "
           "million\n"
           "requests of 270,000 sources: 0.003%% of the requests wrongly "
           "allowed or\n"
           "limited; a mean difference of 6%% between the real and the "
           "approximate\n"
           "rate; 3 sources allowed that were above the threshold, by less "
           "than 15%%;\n"
           "none limited that was below it.\n"
           "https://blog.cloudflare.com/"
           "counting-things-a-lot-of-different-things/\n"
           "(2017)\n\n"
           "Not published: the thresholds, which are its customers', how many "
           "requests\n"
           "were over them, and of what the 6%% is the mean: requests or "
           "sources, with\n"
           "or without those that come alone.\n\n");

    printf("The rate of `counter` is off by %.1f%%, %.1f times Cloudflare's "
           "6%%; by\n"
           "%.1f%%, %.1f times, if each request counts itself as well and "
           "those that come\n"
           "alone are averaged as well. With `precision=10` it is %.1f%%, %.2f "
           "times.\n"
           "Ours is worse at `precision=1` because these clients do not send "
           "evenly,\n"
           "which is what the counter takes for granted, but a page and its "
           "images,\n"
           "and then nothing for a while; nor does the server as a whole.\n\n",
           others, others / PEER_RATE, all, all / PEER_RATE,
           counter_10->of[TRACE_RATE_OTHERS].mean,
           counter_10->of[TRACE_RATE_OTHERS].mean / PEER_RATE);

    printf("Of decisions, `counter` gets %.0f times as many wrong as "
           "Cloudflare's\n"
           "0.003%% at %u a minute, where `log` rejects %.1f%% of all "
           "requests, and\n"
           "%.1f times at %u, where it rejects %.3f%%; `precision=10` gets "
           "%.0f and\n"
           "%.1f times as many wrong. Only requests of clients near the limit, "
           "or\n"
           "above it, can be decided wrongly, so the share depends on how many "
           "of\n"
           "these there are more than on the algorithm: here a client that is "
           "above a\n"
           "limit is little above it, since none sends more than 29 a minute, "
           "while a\n"
           "threshold against attacks lies far from nearly all sources. One "
           "request of\n"
           "the %zu is 0.003%%.\n\n",
           found[COUNTER][TEN].wrong.mean / PEER_WRONG, limits[TEN],
           found[LOG][TEN].rejected,
           found[COUNTER][LIMITS - 1].wrong.mean / PEER_WRONG,
           limits[LIMITS - 1], found[LOG][LIMITS - 1].rejected,
           found[COUNTER_10][TEN].wrong.mean / PEER_WRONG,
           found[COUNTER_10][LIMITS - 1].wrong.mean / PEER_WRONG, clients.n);

    printf(
        "By clients it is worse, too: where Cloudflare missed 3 of 270,000,\n"
        "`counter` misses %.1f of the %.0f that come above %u a minute, of "
        "%llu in\n"
        "all, in one replay one that is %.0f%% above it, and rejects requests "
        "of %.1f that never\n"
        "do. With `precision=10` these are %.1f, %.0f%% and %.1f.\n",
        ours->missed, ours->above, CLIENT_LIMIT, senders(&clients),
        ours->furthest, ours->unfounded, ours_10->missed, ours_10->furthest,
        ours_10->unfounded);
}

static void report(void)
{
    rates_t counter, counter_10;

    report_decisions();

    printf(
        "### Rate error\n\n"
        "When a request comes, its client's requests of the last minute, not\n"
        "counting itself, are so many in reality and so many by the "
        "algorithm's\n"
        "estimate: the mean of the difference, in percent of the real number, "
        "and\n"
        "its lowest and highest. Nothing is rejected, so that these are all of "
        "a\n"
        "client's requests. Of requests that find *others*; that find 10 or "
        "more;\n"
        "of *all*, each request counting itself; *by client*, a mean of the "
        "clients' means\n"
        "of the first. Then of requests that find others if only 10 a minute "
        "are\n"
        "admitted, and these alone are counted; and if all requests were one\n"
        "client's.\n\n");

    report_rates(&counter, &counter_10);
    report_peer(&counter, &counter_10);

    printf("\nIn short: on real traffic, of one server, `counter` is off by "
           "%.1f%% of"
           " a client's rate, and by %.1f%%\nwith `precision=10`; Cloudflare"
           " has published 6%% of the same algorithm, on its own traffic.\n",
           counter.of[TRACE_RATE_OTHERS].mean,
           counter_10.of[TRACE_RATE_OTHERS].mean);
}

static int plot(const char *path)
{
    FILE *file = fopen(path, "w");

    if (file == NULL) {
        perror(path);
        return 1;
    }

    plot_print(&clients, file);

    return fclose(file) != 0;
}

int main(int argc, char **argv)
{
    int failed = 0;

    if (!trace_read(&clients, TRACE_PATH)) {
        perror(TRACE_PATH);
        return 1;
    }

    server = merged(&clients);
    report();
    trace_free(&server);

    if (argc == 3 && strcmp(argv[1], "--data") == 0) {
        failed = plot(argv[2]);
    }

    trace_free(&clients);

    return failed;
}
