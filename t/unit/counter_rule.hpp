/* Copyright (C) the limit_sliding authors */

/*
 * algorithm=counter by its rule, as straightforward as can be: precision=auto,
 * which converts states, any other precision, and strict.  docs/algorithms.md
 * has the rule.
 */

#pragma once

#include <stddef.h>
#include <stdint.h>

#define RULE_PARTS_MAX 60

__extension__ typedef unsigned __int128 rule_wide_t;

struct rule_kind_t {
    uint64_t limit_max;
    int64_t parts;
};

static const rule_kind_t rule_kinds[]
    = {{3, 40},  {7, 36},  {15, 28},  {21, 22},   {31, 7},        {63, 6},
       {127, 5}, {255, 4}, {2047, 3}, {16383, 2}, {UINT64_MAX, 1}};

/* The counts of the parts newest - n .. newest; n is 0 if there is no state. */
struct rule_state_t {
    int64_t n;
    int64_t newest;
    uint64_t count[RULE_PARTS_MAX + 1];
};

struct rule_t {
    uint64_t window_ms;
    unsigned precision; /* 0: auto */
    int strict;
    rule_state_t state;
};

/* A state at a moment, under a limit. */
struct rule_view_t {
    rule_state_t state; /* of which the newest part is the present one */
    uint64_t elapsed;   /* of it, 0 .. w - 1 */
};

static inline int64_t rule_part(const rule_t *rule, int64_t n, uint64_t now_ms) {
    return (int64_t)(now_ms * (uint64_t)n / rule->window_ms);
}

/* The part of n that holds the last moment of this one of so many others. */
static inline int64_t rule_moved(int64_t part, int64_t from, int64_t n) {
    return ((part + 1) * n + from - 1) / from - 1;
}

static inline rule_state_t rule_converted(const rule_state_t *state, int64_t n) {
    rule_state_t to = {.n = n, .newest = rule_moved(state->newest, state->n, n), .count = {0}};

    for (int64_t i = 0; i <= state->n; i++) {
        int64_t part = rule_moved(state->newest - state->n + i, state->n, n);

        to.count[part - to.newest + n] += state->count[i];
    }

    return to;
}

static inline int rule_fits(const rule_state_t *state, const rule_kind_t *kind) {
    uint64_t sum = 0;
    uint64_t most = 0;

    for (int64_t i = 0; i <= state->n; i++) {
        sum += state->count[i];
        most = state->count[i] > most ? state->count[i] : most;
    }

    return (kind->parts > 7 ? sum : most) <= kind->limit_max;
}

/* True if nothing of the state counts any more, as it is. */
static inline int rule_is_over(const rule_t *rule, uint64_t now_ms) {
    const rule_state_t *state = &rule->state;

    for (int64_t i = 0; state->n > 0 && i <= state->n; i++) {
        if (state->count[i] > 0 && rule_part(rule, state->n, now_ms) <= state->newest + i) {
            return 0;
        }
    }

    return 1;
}

/* The state in the format that a request of this limit finds. */
static inline rule_state_t rule_read(const rule_t *rule, uint64_t now_ms, uint64_t limit) {
    const rule_kind_t *kind = rule_kinds;
    rule_state_t state = rule->state;
    rule_state_t none = {.n = (int64_t)rule->precision};

    if (rule->precision == 0) {
        while (kind->limit_max < limit) {
            kind++;
        }

        none.n = kind->parts;

        if (rule_is_over(rule, now_ms) && state.n != kind->parts) { state.n = 0; }
    }

    if (rule->precision == 0) {
        while (state.n != 0 && kind->parts != state.n) {
            rule_state_t other = rule_converted(&state, kind->parts);

            /* parts that end where longer ones do, or longer ones */
            int is_steady = kind->parts < state.n || kind->parts % state.n == 0;

            if (is_steady && rule_fits(&other, kind)) {
                state = other;
                break;
            }

            kind++;
        }
    }

    none.newest = rule_part(rule, none.n, now_ms);

    return state.n == 0 ? none : state;
}

static inline rule_view_t rule_view(const rule_t *rule, uint64_t now_ms, uint64_t limit) {
    rule_state_t state = rule_read(rule, now_ms, limit);
    uint64_t w = rule->window_ms;
    rule_view_t view = {.state = state, .elapsed = now_ms * (uint64_t)state.n % w};
    int64_t present = rule_part(rule, state.n, now_ms);

    if (present < state.newest) {
        view.elapsed = 0;
        return view;
    }

    view.state.newest = present;

    for (int64_t i = 0; i <= state.n; i++) {
        /* they move on */
        int64_t old = i + present - state.newest;

        view.state.count[i] = old <= state.n ? state.count[old] : 0;
    }

    return view;
}

/* When the state is over, if it is seen as one of another number of parts. */
static inline uint64_t rule_ends_ms(const rule_t *rule, const rule_view_t *view, uint64_t now_ms) {
    uint64_t ends_ms = now_ms;

    if (rule->state.n == view->state.n || rule_is_over(rule, now_ms)) { return 0; }

    while (!rule_is_over(rule, ends_ms)) {
        ends_ms += rule->window_ms;
    }

    for (uint64_t step = rule->window_ms; step > 0; step /= 2) {
        while (ends_ms - step >= now_ms && rule_is_over(rule, ends_ms - step)) {
            ends_ms -= step;
        }
    }

    return ends_ms;
}

/* What is used, x w. */
static inline rule_wide_t rule_used(const rule_t *rule, const rule_view_t *view, uint64_t limit) {
    rule_wide_t refund = (rule_wide_t)view->state.count[0] * view->elapsed;
    rule_wide_t sum = 0;

    if (rule->precision == 0 && view->state.n > 1) {
        rule_wide_t most = (rule_wide_t)(limit / (uint64_t)view->state.n) * rule->window_ms;

        refund = refund < most ? refund : most;
    }

    if (rule->strict) { refund = 0; }

    for (int64_t i = 0; i <= view->state.n; i++) {
        sum += view->state.count[i];
    }

    return sum * rule->window_ms - refund;
}

static inline rule_wide_t rule_used_at(const rule_t *rule, uint64_t now_ms, uint64_t limit) {
    rule_view_t view = rule_view(rule, now_ms, limit);

    return rule_used(rule, &view, limit);
}

/* Admits as many of so many requests as fit, and returns how many. */
static inline unsigned rule_take(rule_t *rule, uint64_t now_ms, uint64_t limit, uint64_t cost,
                                 unsigned units, int look) {
    rule_view_t view = rule_view(rule, now_ms, limit);
    rule_wide_t full = (rule_wide_t)limit * rule->window_ms;
    unsigned granted = 0;

    while (granted < units
           && rule_used(rule, &view, limit) + (rule_wide_t)cost * rule->window_ms <= full) {
        if (!look) { view.state.count[view.state.n] += cost; }

        granted++;
    }

    if (granted > 0 && cost > 0 && !look) { rule->state = view.state; }

    return granted;
}

/* Takes back a cost that was counted in this part of so many. */
static inline void rule_give_back(rule_t *rule, int64_t n, int64_t part, uint64_t cost) {
    rule_state_t *state = &rule->state;
    int64_t i;

    if (state->n == 0) { return; }

    i = rule_moved(part, n, state->n) - state->newest + state->n;

    if (i >= 0 && i <= state->n) {
        state->count[i] -= state->count[i] < cost ? state->count[i] : cost;
    }
}
