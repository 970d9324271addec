/* Copyright (C) the limit_sliding authors */

/*
 * One key of a zone in Redis, and the nodes that see its requests, in the order
 * of events: docs/scale.md.  Times are of Redis's clock; each node's has an
 * offset of its own.
 */

#pragma once

#include <stdint.h>

enum sim_mode_t {
    SIM_STRICT = 0, /* a call for each request */
    SIM_COALESCED,  /* calls are shared, refusals remembered */
    SIM_LEASED,     /* the same, with lease=auto */
    SIM_SYNCED      /* decided by the node, with sync= */
};

struct sim_config_t {
    uint32_t nodes; /* a request comes to any of them */
    uint32_t limit; /* requests a window */
    uint32_t burst; /* of a token bucket, whose leases are not simulated; 0:
                                    algorithm=counter */
    uint32_t window_ms;
    uint32_t warm_ms; /* before the window that is measured */
    double round_trip_us;
    uint32_t sync_ms;   /* the interval of SIM_SYNCED; more than the round trip */
    int cold;           /* 1: the key has no history when the measured window begins,
                                    and there is no time before it */
    double decision_us; /* of a Redis that has this key alone; 0: it
                                    has no limits */

    /* what if; 0: as the module does it */

    uint32_t refusal_ms; /* a refusal is believed so long at least; 1: no longer
                                    than until a unit is free */
};

/* Of a window. */
struct sim_result_t {
    uint64_t requests;
    uint64_t calls;
    uint64_t admitted;
    uint64_t spent;   /* of these, without a call */
    uint64_t refused; /* without a call */
    uint64_t taken;   /* units that Redis has counted */
    uint64_t over;    /* admitted, but not by an exact limiter that
                                    has admitted the same before */
};

typedef struct sim_s sim_t;

/* Aborts if there is no memory; for free(). */
sim_t *sim_new(const sim_config_t *config, sim_mode_t mode);

/*
 * Adds to *result what becomes of a window's requests, so many a second.  All
 * modes see the same ones for the same seed.
 */
void sim_run(sim_t *sim, double rate, uint64_t seed, sim_result_t *result);
