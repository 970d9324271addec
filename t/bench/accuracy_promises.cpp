/* Copyright (C) the limit_sliding authors */

/* What is promised of the default is what docs/algorithms.md says of it. */

#include "accuracy.hpp"

struct promise_t {
    uint32_t limit; /* a minute */
    double rate;    /* its largest mean error, in percent */
};

static const promise_t promises[PROMISES]
    = {{10, 2}, {20, 2}, {30, 2}, {100, 4}, {255, 4}, {1000, 6}};

void report_promises(const trace_t *trace, const algorithm_t *algorithms, size_t n,
                     double first[PROMISES]) {
    table_t table = {0};

    table_cell(&table, "a minute");

    for (const promise_t &p : promises) {
        table_cell(&table, "%u", p.limit);
    }

    table_end_row(&table);

    for (size_t a = 0; a < n; a++) {
        table_cell(&table, "`%s`", algorithms[a].name);

        for (size_t i = 0; i < PROMISES; i++) {
            rates_t r = measure_rates(trace, &algorithms[a], promises[i].limit);

            cell_spread(&table, &r.of[TRACE_RATE_OTHERS]);

            if (a == 0) { first[i] = r.of[TRACE_RATE_OTHERS].mean; }
        }

        table_end_row(&table);
    }

    table_print(&table);
}

int broken_promises(const double rates[PROMISES], double wrong) {
    int n = 0;

    if (wrong > PROMISED_WRONG) {
        fprintf(stderr, "%.3f%% of decisions are wrong, not %.2f%%\n", wrong, PROMISED_WRONG);
        n++;
    }

    for (size_t i = 0; i < PROMISES; i++) {
        if (rates[i] > promises[i].rate) {
            fprintf(stderr, "limit %u: the rate is off by %.3f%%, not %.1f%%\n", promises[i].limit,
                    rates[i], promises[i].rate);
            n++;
        }
    }

    return n;
}
