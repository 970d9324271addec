/* Copyright (C) the limit_sliding authors */

/*
 * What each algorithm makes of the same bursts, for plots.gp: blocks of
 *
 *     second  requests in it  admitted in it  admitted in the last minute
 *
 * the first of them without a limit.  Where requests are delayed, they count
 * when they are let go.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zone.hpp"

#define SECONDS 300
#define WINDOW_MS 60000u
#define LIMIT 60
#define BURST 30 /* LEAKY_BUCKET: requests that may wait */
#define ZONE_BYTES 65536

/* Requests at even distances. */
struct demand_t {
    uint32_t from_s;
    uint32_t to_s;
    uint32_t a_second;
};

struct plot_t {
    Algorithm algorithm;
    uint32_t precision;
    uint32_t burst;
};

typedef uint32_t counts_t[SECONDS];

/* A minute ends at 60, 120, ... */
static const demand_t demand[] = {
    {5, 45, 1},     /* below the limit */
    {54, 66, 20},   /* a burst where a minute ends */
    {140, 144, 40}, /* a burst after a rest */
    {180, 280, 2}   /* twice the limit, for long */
};

static const plot_t plots[]
    = {{Algorithm::kCounter, 0, 0},     {Algorithm::kCounter, 1, 0},
       {Algorithm::kLog, 0, 0},         {Algorithm::kFixed, 0, 0},
       {Algorithm::kTokenBucket, 0, 0}, {Algorithm::kLeakyBucket, 0, BURST}};

static counts_t requests;

static void print(const counts_t admitted) {
    uint32_t last_minute = 0;

    for (uint32_t s = 0; s < SECONDS; s++) {
        last_minute += admitted[s];
        last_minute -= s < 60 ? 0 : admitted[s - 60];

        printf("%" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 "\n", s, requests[s], admitted[s],
               last_minute);
    }

    printf("\n\n");
}

/* The millisecond in which a request is let go; SECONDS or more: never. */
static uint64_t decide(Zone *zone, const Policy *policy, uint64_t now_ms) {
    Claim claim = {0};
    Verdict verdict;

    claim.zone = zone;
    claim.policy = policy;
    claim.hash = zone->hash({(const char *)"key", 3});
    claim.limit = LIMIT;
    claim.cost = 1;

    limit_sliding::acquire(&claim, 1, now_ms);
    verdict = claim.describe(now_ms);

    return claim.outcome == Outcome::kAdmitted ? now_ms + verdict.delay_ms : UINT64_MAX;
}

static void plot(const plot_t *p, void *memory) {
    Policy policy = {0};
    Zone *zone;
    counts_t admitted = {0};
    uint64_t at_ms;

    policy.window_ms = WINDOW_MS;
    policy.algorithm = p->algorithm;
    policy.precision = p->precision;
    policy.burst = p->burst;

    zone = zone_of(memory, ZONE_BYTES, &policy, 0);

    for (uint32_t s = 0; s < SECONDS; s++) {
        for (uint32_t i = 0; i < requests[s]; i++) {
            at_ms = decide(zone, &policy, 1000 * s + 1000 * i / requests[s]);

            if (at_ms < 1000 * SECONDS) { admitted[at_ms / 1000]++; }
        }
    }

    print(admitted);
}

int main(void) {
    void *memory = zone_memory(ZONE_BYTES);

    for (size_t i = 0; i < sizeof(demand) / sizeof(demand[0]); i++) {
        for (uint32_t s = demand[i].from_s; s < demand[i].to_s; s++) {
            requests[s] = demand[i].a_second;
        }
    }

    print(requests);

    for (size_t i = 0; i < sizeof(plots) / sizeof(plots[0]); i++) {
        plot(&plots[i], memory);
    }

    free(memory);

    return 0;
}
