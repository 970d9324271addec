/* Copyright (C) the limit_sliding authors */

/* A key whose nodes decide by what they know, with sync=, beside other ways. */

#pragma once

#include <stdio.h>

#include "fleet.hpp"

struct sync_key_t {
    uint32_t nodes;
    uint32_t limit;
    uint32_t window_ms;
    double rate; /* requests a second, of all nodes */
    int cold;    /* as in sim_config_t */
};

/* Of a window.  Shares of the limit are percentages. */
struct sync_result_t {
    double calls;          /* a request */
    double calls_a_second; /* and node */
    double over;           /* admitted, but not by an exact limiter */
    double bound;          /* of that: the requests of an interval and a round trip, and
                              one of each node */
    double admitted;
};

sync_result_t sync_run(const sync_key_t *key, sim_mode_t mode, uint32_t sync_ms);

/* Writes a table, and for plots "nodes", then "calls over" of each way. */
void sync_report(FILE *out, FILE *data);

/* Writes a line for each of some keys that do not take long. */
void sync_report_small(void);
