/* Copyright (C) the limit_sliding authors */

#include "fleet_sync.hpp"

#include <stdlib.h>

#define PERCENT 100.0
#define WINDOW_MS 60000
#define ROUND_TRIP_US 500
#define LIMIT 10000

static const uint32_t intervals_ms[] = {10, 100, 1000};

#define INTERVALS (sizeof(intervals_ms) / sizeof(intervals_ms[0]))

sync_result_t sync_run(const sync_key_t *key, sim_mode_t mode, uint32_t sync_ms) {
    sim_config_t config = {.nodes = key->nodes,
                           .limit = key->limit,
                           .window_ms = key->window_ms,
                           .warm_ms = key->window_ms,
                           .round_trip_us = ROUND_TRIP_US,
                           .sync_ms = sync_ms,
                           .cold = key->cold};
    sim_t *sim = sim_new(&config, mode);
    sim_result_t r = {};

    sim_run(sim, key->rate, 1, &r);
    free(sim);

    double interval_s = (sync_ms * 1000.0 + ROUND_TRIP_US) / 1e6;
    double seconds = key->window_ms / 1000.0;
    double bound = key->rate * interval_s + key->nodes;

    return {r.calls / (double)r.requests, r.calls / seconds / key->nodes,
            PERCENT * r.over / key->limit, PERCENT * bound / key->limit,
            PERCENT * r.admitted / key->limit};
}

/* A mode, or an interval of a key that nodes decide. */
static void report_way(FILE *out, FILE *data, const sync_key_t *key, const char *name,
                       sim_mode_t mode, uint32_t sync_ms) {
    sync_result_t r = sync_run(key, mode, sync_ms);

    fprintf(out, "| %s | %.0f%% | %u | %s", key->cold ? "none" : "long",
            PERCENT * key->rate * key->window_ms / 1000 / key->limit, key->nodes, name);
    fprintf(out, " | %.4f | %.3g | %.2f%% | %.2f%% | %.2f%% |\n", r.calls, r.calls_a_second,
            r.admitted, r.over, mode == SIM_SYNCED ? r.bound : 0);

    fprintf(data, " %.5g %.5g", r.calls, r.over);
}

static void report_key(FILE *out, FILE *data, const sync_key_t *key) {
    static const char *const names[INTERVALS] = {"sync=10ms", "sync=100ms", "sync=1s"};

    fprintf(data, "%u", key->nodes);
    report_way(out, data, key, "strict", SIM_STRICT, 0);
    report_way(out, data, key, "coalesced", SIM_COALESCED, 0);
    report_way(out, data, key, "leased", SIM_LEASED, 0);

    for (size_t i = 0; i < INTERVALS; i++) {
        report_way(out, data, key, names[i], SIM_SYNCED, intervals_ms[i]);
    }

    fprintf(data, "\n");
    fflush(out);
}

void sync_report(FILE *out, FILE *data) {
    static const uint32_t nodes[] = {1, 2, 5, 10, 30, 100, 300, 1000};
    static const struct {
        double of_limit;
        int cold;
    } demands[] = {{0.9, 0}, {2, 0}, {10, 1}};

    fprintf(out,
            "\n### One key of %u a minute, decided by the nodes\n\n| history | demand | nodes |"
            " | calls a request | calls a second and node | admitted, of the limit | over | bound"
            " |\n|---|---|---|---|---|---|---|---|---|\n",
            LIMIT);

    for (const auto &demand : demands) {
        for (uint32_t n : nodes) {
            sync_key_t key
                = {n, LIMIT, WINDOW_MS, demand.of_limit * LIMIT * 1000 / WINDOW_MS, demand.cold};

            report_key(out, data, &key);
        }

        fprintf(data, "\n\n");
    }
}

void sync_report_small(void) {
    static const struct {
        const char *name;
        sync_key_t key;
        uint32_t sync_ms;
    } runs[] = {{"below the limit", {10, 10000, 10000, 900, 0}, 100},
                {"over the limit", {2, 10000, 10000, 5000, 0}, 100},
                {"over the limit, many nodes", {100, 10000, 10000, 5000, 0}, 100},
                {"over the limit, 1 s", {10, 10000, 10000, 5000, 0}, 1000},
                {"far over the limit, no history", {10, 10000, 10000, 20000, 1}, 100},
                {"far over the limit", {10, 10000, 10000, 20000, 0}, 100},
                {"few requests a node", {300, 10000, 10000, 2000, 0}, 100},
                {"a low limit", {10, 100, 10000, 100, 0}, 100}};

    for (const auto &run : runs) {
        sync_result_t r = sync_run(&run.key, SIM_SYNCED, run.sync_ms);

        printf("%s\t%.6f\t%.6f\t%.6f\t%.6f\t%.6f\n", run.name, r.calls, r.calls_a_second, r.over,
               r.bound, r.admitted);
    }
}
