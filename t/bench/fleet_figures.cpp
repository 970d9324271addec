/* Copyright (C) the limit_sliding authors */

/*
 * Limits in Redis at a scale that no test bed has: docs/scale.md.
 *
 *     fleet_figures TABLES DATA   what docs/scale-figures.md and fleet.gp take
 *     fleet_figures               a small one for t/docs/fleet.t
 *     fleet_figures sync          another one for it
 */

#include "fleet_figures.hpp"

#include "fleet_sync.hpp"

#include <math.h>
#include <stdlib.h>

#include <algorithm>

#define NODES 1000
#define MINUTE_MS 60000
#define ROUND_TRIP_US 500

/* One Redis, one core: what the sizes below take for granted. */
#define A_SECOND_ALONE 130000.0  /* decisions, a call for each */
#define A_SECOND_SHARED 474000.0 /* when 16 keys share a call */
#define BYTES_A_KEY 136          /* docs/redis.md */

#define PERCENT 100.0

static const sim_config_t defaults = {.nodes = NODES,
                                      .limit = 1000,
                                      .window_ms = MINUTE_MS,
                                      .warm_ms = 2000,
                                      .round_trip_us = ROUND_TRIP_US};

static double less(double part, double whole) {
    return whole > part ? PERCENT * (whole - part) / whole : 0;
}

static double ratio(uint64_t part, uint64_t whole) { return (double)part / (double)whole; }

/* With 1,000 apart. */
static void print_count(FILE *out, double count) {
    double thousands = floor(count / 1000);

    if (thousands > 0) {
        print_count(out, thousands);
        fprintf(out, ",%03.0f", count - 1000 * thousands);

    } else {
        fprintf(out, "%.0f", count);
    }
}

static void print_cell(FILE *out, double count) {
    fprintf(out, " | ");
    print_count(out, floor(count + 0.5));
}

static void report_demand(FILE *out, FILE *data, double exponent, uint32_t nodes, uint32_t limit) {
    demand_t demand = {1e9, 1e7, exponent};
    double live = demand_live(&demand, MINUTE_MS / 1000.0);
    estimate_t e;
    sim_config_t config = defaults;

    config.nodes = nodes;
    config.limit = limit;

    estimate(&config, &demand, data, &e);

    fprintf(out, "### zipf %.1f, ", exponent);
    print_count(out, limit);
    fprintf(out, " a minute, each key seen by ");
    print_count(out, nodes);
    fprintf(out, " nodes\n\nThe hottest key gets ");
    print_count(out, round(demand_hottest(&demand)));
    fprintf(out, " requests a second. ");
    print_count(out, round(live / 1e6));
    fprintf(out, " million keys are in Redis, in %.1f GB.\n\n", live * BYTES_A_KEY / 1e9);
    fprintf(out, "| | calls a request | decisions a second | Redis, 130,000"
                 " each | Redis, 474,000 each | for the hottest key | by leases |"
                 " from the cache | over | under | lapsed |\n"
                 "|---|---|---|---|---|---|---|---|---|---|---|\n");

    for (int way = 0; way < WAYS; way++) {
        const shares_t *share = &e.shares[way];
        double calls = share->calls * demand.a_second;
        double strict = e.shares[WAY_STRICT].admitted;

        fprintf(out, "| %s | %.3f", way_names[way], share->calls);
        print_cell(out, calls);
        print_cell(out, ceil(calls / A_SECOND_ALONE));
        print_cell(out, ceil(calls / A_SECOND_SHARED));
        print_cell(out, e.hottest[way]);
        fprintf(out, " | %.1f%% | %.1f%% | %.3g | %.3f%% | %.3f%% |\n", PERCENT * share->spent,
                PERCENT * share->refused, share->over, less(share->admitted, strict),
                PERCENT * (share->taken - share->admitted) / strict);
    }

    fprintf(out, "\n");
    fflush(out);
}

static void report_row(FILE *out, const sim_result_t r[WAYS]) {
    const sim_result_t *strict = &r[WAY_STRICT];
    const sim_result_t *leased = &r[WAY_LEASED];

    fprintf(out, " | %.4f | %.4f", ratio(r[WAY_COALESCED].calls, strict->requests),
            ratio(leased->calls, leased->requests));
    fprintf(out, " | %.3f%% | %.3f%% | %lu |\n",
            less((double)leased->admitted, (double)strict->admitted),
            PERCENT * ratio(leased->taken - leased->admitted, strict->admitted),
            (unsigned long)(r[WAY_COALESCED].over + leased->over));
    fflush(out);
}

static void report_nodes(FILE *out, FILE *data, uint32_t limit, double of_limit) {
    static const uint32_t nodes[] = {1, 3, 10, 30, 100, 300, 1000, 3000};

    double rate = of_limit * limit / (MINUTE_MS / 1000);
    sim_config_t config = defaults;
    sim_result_t r[WAYS];

    config.limit = limit;

    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        config.nodes = nodes[i];
        sample(&config, rate, limit < 100000 ? 20 : 1, i, r);

        fprintf(out, "| ");
        print_count(out, limit);
        fprintf(out, " | %.0f%%", PERCENT * of_limit);
        print_cell(out, nodes[i]);
        fprintf(out, rate < 100 * nodes[i] ? " | %.3g" : " | %.0f", rate / nodes[i]);
        report_row(out, r);

        fprintf(data, "%u %.4g %.4g %.4g\n", nodes[i],
                ratio(r[WAY_LEASED].calls, r[WAY_LEASED].requests),
                PERCENT
                    * ratio(r[WAY_LEASED].taken - r[WAY_LEASED].admitted, r[WAY_STRICT].admitted),
                less((double)r[WAY_LEASED].admitted, (double)r[WAY_STRICT].admitted));
    }

    fprintf(data, "\n\n");
}

/* From a hundredth of the limit to more than five times as much. */
static void report_ratios(FILE *data, uint32_t nodes, uint32_t limit) {
    sim_config_t config = defaults;
    sim_result_t r[WAYS];

    config.nodes = nodes;
    config.limit = limit;

    for (int i = -8; i <= 3; i++) {
        double of_limit = pow(10, i / 4.0);
        double rate = of_limit * limit / (MINUTE_MS / 1000);

        sample(&config, rate, 1, 1, r);

        fprintf(data, "%.4g", of_limit);

        for (int way = 0; way < WAYS; way++) {
            fprintf(data, " %.4g", ratio(r[way].calls, r[way].requests));
        }

        fprintf(data, "\n");
    }

    fprintf(data, "\n\n");
}

struct what_if_t {
    const char *name;
    uint32_t nodes;
    uint32_t limit;
    double rate;
    uint32_t refusal_ms;
    double decision_us;
};

static void report_what_if(FILE *out, const what_if_t *what_if) {
    sim_config_t config = defaults;
    sim_result_t r[WAYS];

    config.nodes = what_if->nodes;
    config.limit = what_if->limit;
    config.refusal_ms = what_if->refusal_ms;
    config.decision_us = what_if->decision_us;

    sample(&config, what_if->rate, 1, 1, r);

    fprintf(out, "| ");
    print_count(out, what_if->nodes);
    print_cell(out, what_if->limit);
    print_cell(out, what_if->rate);
    fprintf(out, " | %s", what_if->name);
    report_row(out, r);
}

static void report_what_ifs(FILE *out) {
    static const what_if_t what_ifs[]
        = {{"as it is", NODES, 1000000, 150000, 0, 0},
           {"as it is, of a Redis that decides 130,000 a second", NODES, 1000000, 150000, 0,
            1e6 / A_SECOND_ALONE},
           {"refused until a unit is free", NODES, 1000000, 150000, 1, 0},
           {"refused for 250 ms at least", NODES, 1000000, 150000, 250, 0},
           {"refused for 1 s at least", NODES, 1000000, 150000, 1000, 0},
           {"as it is", NODES, 1000, 10000, 0, 0},
           {"refused until a unit is free", NODES, 1000, 10000, 1, 0},
           {"refused for 250 ms at least", NODES, 1000, 10000, 250, 0},
           {"refused for 1 s at least", NODES, 1000, 10000, 1000, 0},
           {"as it is", 10, 1000000, 20000, 0, 0},
           {"refused until a unit is free", 10, 1000000, 20000, 1, 0},
           {"refused for 250 ms at least", 10, 1000000, 20000, 250, 0},
           {"as it is", 1, 1000, 100, 0, 0},
           {"refused until a unit is free", 1, 1000, 100, 1, 0},
           {"refused for 250 ms at least", 1, 1000, 100, 250, 0},
           {"refused for 1 s at least", 1, 1000, 100, 1000, 0},
           {"as it is", 10, 4000000, 60000, 0, 0}};

    for (size_t i = 0; i < sizeof(what_ifs) / sizeof(what_ifs[0]); i++) {
        report_what_if(out, &what_ifs[i]);
    }
}

static void report(FILE *out, FILE *data) {
    fprintf(out, "# Figures of the simulation\n\n"
                 "`make fleet` writes this page."
                 " [scale.md](scale.md) explains the figures.\n\n");

    report_demand(out, data, 1.0, NODES, 1000);
    report_demand(out, data, 1.0, NODES, 1000000);
    report_demand(out, NULL, 1.0, 10, 1000);
    report_demand(out, NULL, 1.0, 10, 1000000);
    report_demand(out, NULL, 0.8, NODES, 1000);
    report_demand(out, NULL, 1.2, NODES, 1000);

    report_ratios(data, 10, 1000000);
    report_ratios(data, NODES, 1000000);

    fprintf(out, "### One key, by nodes\n\n| limit a minute | demand | nodes |"
                 " requests a second and node | calls a request, coalesced | leased"
                 " | under | lapsed | over |\n"
                 "|---|---|---|---|---|---|---|---|---|\n");

    report_nodes(out, data, 1000000, 0.9);
    report_nodes(out, data, 1000000, 1);
    report_nodes(out, data, 1000, 0.9);
    report_nodes(out, data, 1000, 1);

    fprintf(out, "\n### One key, if calls were made otherwise\n\n| nodes |"
                 " limit a minute | requests a second | | calls a request, coalesced"
                 " | leased | under | lapsed | over |\n"
                 "|---|---|---|---|---|---|---|---|---|\n");

    report_what_ifs(out);
    sync_report(out, data);
}

static void report_small(void) {
    static const struct {
        const char *name;
        uint32_t nodes;
        uint32_t limit;
        double rate;
        uint64_t runs;
        uint32_t window_ms;
        uint32_t burst; /* of a token bucket */
    } keys[] = {{"hot", 10, 4000000, 60000, 1},
                {"hot, over the limit", 10, 1000000, 20000, 1},
                {"many nodes", 1000, 1000000, 16000, 1},
                {"at the limit", 100, 1000000, 16667, 1},
                {"many nodes, over the limit", 1000, 1000000, 30000, 1},
                {"a low limit", 100, 1000, 100, 1},
                {"sparse", 100, 8000, 20, 40},
                {"a few a second", 10, 10000, 50, 10},
                {"far over the limit", 1000, 166667, 470000, 1, 10000},
                {"far over the limit, 1 s", 10, 16667, 150000, 1, 1000},
                {"far over the limit, 1 s, a node", 1, 16667, 150000, 1, 1000},
                {"far over the limit, 100 ms", 10, 10000, 300000, 1, 100},
                {"far over the limit, bucket", 1000, 166667, 150000, 1, 10000, 166667},
                {"far over the limit, a small bucket", 10, 166667, 150000, 1, 10000, 20},
                {"at the limit, a small bucket", 10, 166667, 20000, 1, 10000, 100}};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        sim_config_t config = defaults;
        sim_result_t r[WAYS];

        config.nodes = keys[i].nodes;
        config.limit = keys[i].limit;
        config.burst = keys[i].burst;
        if (keys[i].window_ms) {
            config.window_ms = keys[i].window_ms;
            config.warm_ms = std::min(config.warm_ms, config.window_ms);
        }

        sample(&config, keys[i].rate, keys[i].runs, 1, r);

        for (int way = 0; way < WAYS; way++) {
            printf("%s\t%s\t%.6f\t%lu\t%.6f\t%.6f\n", keys[i].name, way_names[way],
                   ratio(r[way].calls, r[way].requests), (unsigned long)r[way].over,
                   less((double)r[way].admitted, (double)r[WAY_STRICT].admitted),
                   PERCENT * ratio(r[way].taken - r[way].admitted, r[way].taken));
        }
    }
}

static FILE *opened(const char *path) {
    FILE *file = fopen(path, "w");

    if (file == NULL) {
        perror(path);
        exit(1);
    }

    return file;
}

int main(int argc, char **argv) {
    FILE *out, *data;

    if (argc != 3) {
        if (argc == 2) {
            sync_report_small();
        } else {
            report_small();
        }
        return 0;
    }

    out = opened(argv[1]);
    data = opened(argv[2]);

    report(out, data);

    return fclose(out) || fclose(data);
}
