/*
 * Copyright (C) the limit_sliding authors
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "trace.h"
#include "zone.h"

#define ZONE_BYTES (4u << 20)

/* ---- the file ---- */

static void *resized(void *memory, size_t bytes)
{
    memory = realloc(memory, bytes);

    if (memory == NULL) {
        abort();
    }

    return memory;
}

int trace_read(trace_t *trace, const char *path)
{
    FILE *file = fopen(path, "r");
    uint64_t second;
    uint64_t client;

    *trace = (trace_t){0};

    if (file == NULL) {
        return 0;
    }

    while (fscanf(file, "%" SCNu64 " %" SCNu64 " %*u", &second, &client) == 2) {
        if ((trace->n & (trace->n + 1)) == 0) {
            trace->request = resized(
                trace->request, 2 * (trace->n + 1) * sizeof(*trace->request));
        }

        trace->request[trace->n++] = (trace_request_t){1000 * second, client};
        trace->clients = client >= trace->clients ? client + 1 : trace->clients;
    }

    fclose(file);

    return 1;
}

void trace_free(trace_t *trace)
{
    free(trace->request);
}

/* ---- the exact log ---- */

/* The last requests that were admitted to a client, as many as the limit. */
typedef struct {
    uint64_t n; /* admitted ever */
    uint64_t at_ms[];
} admitted_t;

static size_t admitted_bytes(uint32_t limit)
{
    return sizeof(admitted_t) + limit * sizeof(uint64_t);
}

/* Fewer than the limit since now - w: so the one `limit` ago is that old. */
static int has_room(const admitted_t *a, uint32_t limit, uint64_t window_ms,
                    uint64_t now_ms)
{
    return a->n < limit || now_ms - a->at_ms[a->n % limit] >= window_ms;
}

static void admit(admitted_t *a, uint32_t limit, uint64_t now_ms)
{
    a->at_ms[a->n++ % limit] = now_ms;
}

/* ---- the replay ---- */

static int core_admits(limit_sliding_zone_t *zone,
                       const limit_sliding_policy_t *policy, uint64_t client,
                       uint32_t limit, uint64_t now_ms)
{
    limit_sliding_claim_t claim = {0};

    claim.zone = zone;
    claim.policy = policy;
    claim.hash = limit_sliding_zone_hash(zone, &client, sizeof(client));
    claim.limit = limit;
    claim.cost = 1;

    limit_sliding_acquire(&claim, 1, now_ms);

    return claim.outcome == LIMIT_SLIDING_ADMITTED;
}

static void count(trace_errors_t *errors, int admitted, int should_be)
{
    errors->requests++;
    errors->rejected += !admitted;
    errors->over += admitted && !should_be;
    errors->under += !admitted && should_be;
}

void trace_replay(const trace_t *trace, const limit_sliding_policy_t *policy,
                  uint32_t limit, uint64_t start_ms, trace_judge_t judge,
                  trace_errors_t *errors)
{
    void *memory = zone_memory(ZONE_BYTES);
    limit_sliding_zone_t *zone = zone_of(memory, ZONE_BYTES, policy, 0);
    char *log = calloc(trace->clients, admitted_bytes(limit));

    if (log == NULL) {
        abort();
    }

    *errors = (trace_errors_t){0};

    for (size_t i = 0; i < trace->n; i++) {
        const trace_request_t *r = &trace->request[i];
        uint64_t now_ms = start_ms + r->at_ms;
        admitted_t *a = (admitted_t *)(log + r->client * admitted_bytes(limit));
        int should_be = has_room(a, limit, policy->window_ms, now_ms);
        int admitted = core_admits(zone, policy, r->client, limit, now_ms);

        count(errors, admitted, should_be);

        if (judge == TRACE_OWN_HISTORY ? should_be : admitted) {
            admit(a, limit, now_ms);
        }
    }

    free(log);
    free(memory);
}
