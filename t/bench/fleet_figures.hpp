/* Copyright (C) the limit_sliding authors */

/* What a zone's keys ask of Redis, by samples of them. */

#pragma once

#include <stdio.h>

#include "fleet.hpp"

/* The key of a rank has a share of the demand that goes as rank^-exponent. */
struct demand_t {
    double keys;
    double a_second; /* requests for all of them */
    double exponent;
};

/* How calls are made: as the module does it, and as it might. */
enum way_t {
    WAY_STRICT = SIM_STRICT,
    WAY_COALESCED = SIM_COALESCED,
    WAY_LEASED = SIM_LEASED,
    WAY_EAGER, /* leased, and refused no longer than until a unit is free */
    WAYS
};

extern const char *const way_names[WAYS];

/* Shares of all requests. */
struct shares_t {
    double requests; /* 1, but for chance */
    double calls;
    double admitted;
    double spent;
    double refused;
    double taken;
    double over;
};

struct estimate_t {
    shares_t shares[WAYS];
    double hottest[WAYS]; /* calls a second for the first key */
};

/*
 * Samples keys of all ranks, and writes "rank calls-per-request..." of each
 * sample for all ways to `data` unless that is NULL.
 */
void estimate(const sim_config_t *config, const demand_t *demand, FILE *data, estimate_t *result);

/* Runs one key `runs` times in each way. */
void sample(const sim_config_t *config, double rate, uint64_t runs, uint64_t seed,
            sim_result_t results[WAYS]);

/* Requests a second for the first key. */
double demand_hottest(const demand_t *demand);

/* How many keys have a state in Redis, of algorithm=counter. */
double demand_live(const demand_t *demand, double window_s);
