/* Copyright (C) the limit_sliding authors */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace.hpp"
#include "zone.hpp"

#define ZONE_BYTES (4u << 20)

/* ---- the file ---- */

static void *resized(void *memory, size_t bytes) {
    memory = realloc(memory, bytes);

    if (memory == NULL) { abort(); }

    return memory;
}

int trace_read(trace_t *trace, const char *path) {
    FILE *file = fopen(path, "r");
    uint64_t second;
    uint64_t client;

    *trace = (trace_t){0};

    if (file == NULL) { return 0; }

    while (fscanf(file, "%" SCNu64 " %" SCNu64 " %*u", &second, &client) == 2) {
        if ((trace->n & (trace->n + 1)) == 0) {
            trace->request = static_cast<trace_request_t *>(
                resized(trace->request, 2 * (trace->n + 1) * sizeof(*trace->request)));
        }

        trace->request[trace->n++] = (trace_request_t){1000 * second, client};
        trace->clients = client >= trace->clients ? client + 1 : trace->clients;
    }

    fclose(file);

    return 1;
}

void trace_free(trace_t *trace) { free(trace->request); }

/* ---- the exact log ---- */

/* Requests that were admitted to a client and are in its last window. */
struct admitted_t {
    uint32_t n;
    size_t oldest; /* numbers in the trace, if there are any */
    size_t newest;
};

struct trace_log_s {
    admitted_t *client;
    size_t *after; /* a request: the client's next one that was admitted */
};

static trace_log_t *new_log(const trace_t *trace) {
    trace_log_t *log = static_cast<trace_log_t *>(resized(NULL, sizeof(*log)));

    log->client = static_cast<admitted_t *>(calloc(trace->clients, sizeof(*log->client)));
    log->after = static_cast<size_t *>(resized(NULL, trace->n * sizeof(*log->after)));

    if (log->client == NULL) { abort(); }

    return log;
}

static void free_log(trace_log_t *log) {
    free(log->client);
    free(log->after);
    free(log);
}

static void forget_old(trace_log_t *log, const trace_t *trace, const trace_request_t *now,
                       uint64_t window_ms) {
    admitted_t *a = &log->client[now->client];

    while (a->n > 0 && now->at_ms - trace->request[a->oldest].at_ms >= window_ms) {
        a->oldest = log->after[a->oldest];
        a->n--;
    }
}

static void record(trace_log_t *log, uint64_t client, size_t request) {
    admitted_t *a = &log->client[client];

    if (a->n++ == 0) {
        a->oldest = request;
    } else {
        log->after[a->newest] = request;
    }

    a->newest = request;
}

/* ---- the replay ---- */

void trace_start(trace_replay_t *replay, const trace_t *trace, const Policy *policy, uint32_t limit,
                 uint64_t start_ms, trace_judge_t judge) {
    *replay = (trace_replay_t){
        .trace = trace, .policy = policy, .limit = limit, .judge = judge, .start_ms = start_ms};

    replay->log = new_log(trace);
    replay->memory = zone_memory(ZONE_BYTES);
    replay->zone = zone_of(replay->memory, ZONE_BYTES, policy, 0);
}

void trace_stop(trace_replay_t *replay) {
    free_log(replay->log);
    free(replay->memory);
}

int trace_next(trace_replay_t *replay) {
    const trace_request_t *r = &replay->trace->request[replay->n];

    if (replay->n == replay->trace->n) { return 0; }

    forget_old(replay->log, replay->trace, r, replay->policy->window_ms);

    replay->n++;
    replay->client = r->client;
    replay->now_ms = replay->start_ms + r->at_ms;
    replay->real = replay->log->client[r->client].n;

    return 1;
}

static Claim claim_of(const trace_replay_t *replay) {
    Claim claim = {0};

    claim.zone = replay->zone;
    claim.policy = replay->policy;
    claim.hash = replay->zone->hash({(const char *)&replay->client, sizeof(replay->client)});
    claim.limit = replay->limit;

    return claim;
}

/* A request for all of the limit exceeds it by what has been used. */
double trace_estimate(const trace_replay_t *replay) {
    Claim claim = claim_of(replay);
    Verdict verdict;

    claim.purpose = Purpose::kLook;
    claim.cost = replay->limit;

    limit_sliding::acquire(&claim, 1, replay->now_ms);
    verdict = claim.describe(replay->now_ms);

    return (double)verdict.excess / 1000;
}

int trace_should_admit(const trace_replay_t *replay) { return replay->real < replay->limit; }

int trace_decide(trace_replay_t *replay) {
    Claim claim = claim_of(replay);
    int admitted;

    claim.cost = 1;
    limit_sliding::acquire(&claim, 1, replay->now_ms);
    admitted = claim.outcome == Outcome::kAdmitted;

    if (replay->judge == TRACE_OWN_HISTORY ? trace_should_admit(replay) : admitted) {
        record(replay->log, replay->client, replay->n - 1);
    }

    return admitted;
}

/* ---- what came of it ---- */

void trace_count_errors(const trace_t *trace, const Policy *policy, uint32_t limit,
                        uint64_t start_ms, trace_judge_t judge, trace_errors_t *errors) {
    trace_replay_t replay;

    *errors = (trace_errors_t){0};
    trace_start(&replay, trace, policy, limit, start_ms, judge);

    while (trace_next(&replay)) {
        int should_be = trace_should_admit(&replay);
        int admitted = trace_decide(&replay);

        errors->requests++;
        errors->rejected += !admitted;
        errors->over += admitted && !should_be;
        errors->under += !admitted && should_be;
    }

    trace_stop(&replay);
}

static void add(trace_rate_errors_t *errors, double error) {
    errors->n++;
    errors->sum += error;
}

static void add_request(const trace_replay_t *replay, trace_rate_errors_t errors[TRACE_RATES],
                        trace_rate_errors_t *client) {
    double real = replay->real;
    double difference = fabs(trace_estimate(replay) - real);

    add(&errors[TRACE_RATE_ALL], difference / (real + 1));

    if (replay->real > 0) {
        add(&errors[TRACE_RATE_OTHERS], difference / real);
        add(client, difference / real);
    }

    if (replay->real >= TRACE_BUSY) { add(&errors[TRACE_RATE_BUSY], difference / real); }
}

void trace_sum_rate_errors(const trace_t *trace, const Policy *policy, uint32_t limit,
                           uint64_t start_ms, trace_rate_errors_t errors[TRACE_RATES]) {
    trace_rate_errors_t *client
        = static_cast<trace_rate_errors_t *>(calloc(trace->clients, sizeof(*client)));
    trace_replay_t replay;

    if (client == NULL) { abort(); }

    memset(errors, 0, TRACE_RATES * sizeof(*errors));
    trace_start(&replay, trace, policy, limit, start_ms, TRACE_SAME_HISTORY);

    while (trace_next(&replay)) {
        add_request(&replay, errors, &client[replay.client]);
        trace_decide(&replay);
    }

    trace_stop(&replay);

    for (uint64_t i = 0; i < trace->clients; i++) {
        if (client[i].n > 0) {
            add(&errors[TRACE_RATE_CLIENTS], client[i].sum / (double)client[i].n);
        }
    }

    free(client);
}
