/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * How often each algorithm decides otherwise than an exact sliding window
 * would, on real requests (t/data/README.md): 10 a minute for each client.
 * Where the minutes of a counter begin is chance, so the trace is replayed
 * from each second of a minute.
 */

#include <inttypes.h>
#include <stdio.h>

#include "trace.h"

#define LIMIT      10
#define WINDOW_MS  60000
#define STARTS     60

typedef struct {
    trace_errors_t  sum;
    uint64_t        least;       /* wrong, of a replay */
    uint64_t        most;
} result_t;

static trace_t  trace;


static result_t
replay_all(const limit_sliding_policy_t *policy, trace_judge_t judge)
{
    result_t        result = { .least = UINT64_MAX };
    trace_errors_t  e;

    for (uint64_t start_s = 0; start_s < STARTS; start_s++) {
        uint64_t  wrong;

        trace_count_errors(&trace, policy, LIMIT, 1000 * start_s, judge, &e);

        wrong = e.over + e.under;
        result.least = wrong < result.least ? wrong : result.least;
        result.most = wrong > result.most ? wrong : result.most;

        result.sum.requests += e.requests;
        result.sum.over += e.over;
        result.sum.under += e.under;
    }

    return result;
}


static double
percent(uint64_t part, uint64_t whole)
{
    return 100.0 * (double) part / (double) whole;
}


static void
report(const limit_sliding_policy_t *policy, trace_judge_t judge)
{
    result_t  r = replay_all(policy, judge);

    printf("  %-10s  %6.3f  %6.3f .. %-6.3f  %8.3f  %8.3f\n",
           judge == TRACE_OWN_HISTORY ? "its own" : "the core's",
           percent(r.sum.over + r.sum.under, r.sum.requests),
           percent(r.least, trace.n), percent(r.most, trace.n),
           percent(r.sum.over, r.sum.requests),
           percent(r.sum.under, r.sum.requests));
}


static void
compare(const char *name, limit_sliding_algorithm_t algorithm,
    uint32_t precision)
{
    limit_sliding_policy_t  policy = {0};

    policy.window_ms = WINDOW_MS;
    policy.algorithm = algorithm;
    policy.precision = precision;

    printf("%-20s", name);
    report(&policy, TRACE_OWN_HISTORY);

    printf("%-20s", "");
    report(&policy, TRACE_SAME_HISTORY);
}


int
main(void)
{
    if (!trace_read(&trace, TRACE_PATH)) {
        perror(TRACE_PATH);
        return 1;
    }

    printf("%zu requests, %d a minute for each client.  Percent that an exact"
           " log decides\notherwise, one with a history of its own or one that"
           " knows what the core admitted:\n\n", trace.n, LIMIT);
    printf("%-20s  history      wrong   least .. most    admitted  rejected\n",
           "");

    compare("log", LIMIT_SLIDING_LOG, 0);
    compare("counter", LIMIT_SLIDING_COUNTER, 1);
    compare("counter precision=10", LIMIT_SLIDING_COUNTER, 10);
    compare("counter precision=60", LIMIT_SLIDING_COUNTER, 60);

    trace_free(&trace);

    return 0;
}
