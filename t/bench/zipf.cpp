/* Copyright (C) the limit_sliding authors */

#include "fleet_figures.hpp"

#include <math.h>
#include <stdlib.h>

#include "random.hpp"

#define ALONE 5       /* ranks that are strata of their own */
#define A_DECADE 6    /* strata beyond */
#define REQUESTS 2000 /* of a stratum's samples, at least */
#define RUNS 400      /* but no more samples than these */

const char *const way_names[WAYS]
    = {"strict", "coalesced", "leased", "leased, refused until a unit is free"};

/* Of rank^-exponent from a to b, as one of a sum that has many terms. */
static double integral(double a, double b, double exponent) {
    double e = 1 - exponent;

    return fabs(e) < 1e-9 ? log(b / a) : (pow(b, e) - pow(a, e)) / e;
}

/* The rank up to which a part of that is reached. */
static double inverse(double a, double b, double exponent, double part) {
    double e = 1 - exponent;

    return fabs(e) < 1e-9 ? a * pow(b / a, part)
                          : pow(pow(a, e) + part * (pow(b, e) - pow(a, e)), 1 / e);
}

/* Of the ranks from a to b - 1. */
static double sum(const demand_t *demand, double a, double b) {
    double total = 0;

    while (a < b && a <= 1000) {
        total += pow(a++, -demand->exponent);
    }

    return a < b ? total + integral(a - 0.5, b - 0.5, demand->exponent) : total;
}

double demand_hottest(const demand_t *demand) {
    return demand->a_second / sum(demand, 1, demand->keys + 1);
}

static double next_stratum(const demand_t *demand, double rank) {
    double next = rank < ALONE ? rank + 1 : ceil(rank * pow(10, 1.0 / A_DECADE));

    return fmin(next, demand->keys + 1);
}

void sample(const sim_config_t *config, double rate, uint64_t runs, uint64_t seed,
            sim_result_t results[WAYS]) {
    for (int way = 0; way < WAYS; way++) {
        sim_config_t c = *config;
        sim_t *sim;

        if (way == WAY_EAGER) { c.refusal_ms = 1; }

        sim = sim_new(&c, way == WAY_EAGER ? SIM_LEASED : (sim_mode_t)way);

        results[way] = (sim_result_t){0};

        for (uint64_t i = 0; i < runs; i++) {
            sim_run(sim, rate, seed + i * 0x9e3779b97f4a7c15, &results[way]);
        }

        free(sim);
    }
}

/* Where keys are so cold that no sample saw any, one comes alone. */
static const sim_result_t lone_request = {.requests = 1, .calls = 1, .admitted = 1, .taken = 1};

/* Of results that stand for a share of the demand. */
static void add(shares_t *shares, const sim_result_t *r, double share, double requests) {
    share /= requests;

    shares->requests += share * (double)r->requests;
    shares->calls += share * (double)r->calls;
    shares->admitted += share * (double)r->admitted;
    shares->spent += share * (double)r->spent;
    shares->refused += share * (double)r->refused;
    shares->taken += share * (double)r->taken;
    shares->over += share * (double)r->over;
}

void estimate(const sim_config_t *config, const demand_t *demand, FILE *data, estimate_t *result) {
    double window_s = config->window_ms / 1000.0;
    double all = sum(demand, 1, demand->keys + 1);
    double next;
    uint64_t random = 1;
    sim_result_t r[WAYS];

    *result = (estimate_t){0};

    for (double rank = 1; rank <= demand->keys; rank = next) {
        next = next_stratum(demand, rank);

        /* one of its keys, each as likely as its demand is great */

        double part = (double)(random_next(&random) >> 11) / 0x1p53;
        double key = next == rank + 1
                         ? rank
                         : round(inverse(rank - 0.5, next - 0.5, demand->exponent, part));
        double rate = demand->a_second * pow(key, -demand->exponent) / all;
        double runs = fmin(ceil(REQUESTS / (rate * window_s)), RUNS);

        sample(config, rate, (uint64_t)runs, random, r);

        if (r[WAY_STRICT].requests == 0) {
            for (int way = 0; way < WAYS; way++) {
                r[way] = lone_request;
            }
        }

        if (data) { fprintf(data, "%.0f", key); }

        for (int way = 0; way < WAYS; way++) {
            double requests = (double)r[way].requests;

            add(&result->shares[way], &r[way], sum(demand, rank, next) / all, requests);

            if (rank == 1) { result->hottest[way] = (double)r[way].calls / window_s; }

            if (data) { fprintf(data, " %.4g", (double)r[way].calls / requests); }
        }

        if (data) { fprintf(data, "\n"); }
    }

    if (data) { fprintf(data, "\n\n"); }
}

/*
 * A state lives for two windows from the first request of a window.  It is
 * gone at a time e into a window if nothing came in this one nor in the one
 * before it, and what the second but last one saw began before its own e, if
 * anything did.
 */
static double live(double a_window) {
    double gone = 0;
    int steps = 32;

    for (int i = 0; i < steps; i++) {
        double e = (i + 0.5) / steps;

        gone += exp(-a_window * (1 + e)) * (1 - exp(-a_window * e) + exp(-a_window));
    }

    return 1 - gone / steps;
}

double demand_live(const demand_t *demand, double window_s) {
    double a_window = demand_hottest(demand) * window_s;
    double keys = 0;
    double b;

    for (double a = 0.5; a < demand->keys; a = b) {
        b = fmin(a * 1.01, demand->keys + 0.5);
        keys += (b - a) * live(a_window * pow((a + b) / 2, -demand->exponent));
    }

    return keys;
}
