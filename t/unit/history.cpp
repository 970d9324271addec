/* Copyright (C) the limit_sliding authors */

#include <stddef.h>
#include <string.h>

#include "core/limiter/limiter.hpp"
#include "history.hpp"
#include "random.hpp"

using namespace limit_sliding;

#define YEAR_MS (365ull * 86400000)
#define BACK_MS 20 /* how far workers' clocks may differ */

struct drawing_t {
    history_t *history;
    uint64_t random;
    uint64_t now_ms;
    uint32_t limit[HISTORY_KEYS];
    size_t n; /* requests drawn */
};

static uint64_t below(drawing_t *d, uint64_t n) { return random_below(&d->random, n); }

/* Small ones most often: each further doubling is half as likely. */
static uint64_t mostly_small(drawing_t *d, uint64_t low, uint64_t high) {
    uint64_t value = low + below(d, 12);

    while (value < high && below(d, 2) == 0) {
        value += below(d, 2 * value + 1);
    }

    return value > high ? high : value;
}

static uint32_t draw_limit(drawing_t *d) {
    if (d->history->is_dense) { return 10 + (uint32_t)below(d, 100); }

    return (uint32_t)(below(d, 4) == 0 ? random_scale(&d->random, 1, kNarrowMax)
                                       : mostly_small(d, 1, kNarrowMax));
}

/* To around where a part of the window ends, at some precision. */
static uint64_t border_gap_ms(drawing_t *d) {
    uint64_t w = d->history->window_ms;
    uint64_t parts = 1 + below(d, 60);
    uint64_t next = d->now_ms * parts / w + 1;

    return (next * w + parts - 1) / parts - d->now_ms - 1 + below(d, 3);
}

/* To around where an earlier request leaves the window. */
static uint64_t leaving_gap_ms(drawing_t *d) {
    uint64_t around_ms = below(d, 3);
    uint64_t at_ms;

    if (d->n == 0) { return 0; }

    at_ms = d->history->request[below(d, d->n)].now_ms + d->history->window_ms - 1 + around_ms;

    return at_ms > d->now_ms ? at_ms - d->now_ms : 0;
}

/* Uniform in its number of digits, of a number of so many bits. */
static uint64_t any_digits(drawing_t *d, unsigned bits) {
    unsigned shift = 64 - bits + (unsigned)below(d, bits);

    return random_next(&d->random) >> shift;
}

/* Up to 50 years, and where the number of a window might wrap. */
static uint64_t idle_gap_ms(drawing_t *d) {
    uint64_t w = d->history->window_ms;
    uint64_t windows_ms = w << below(d, 20);

    switch (below(d, 4)) {
    case 0:
        return any_digits(d, 64) % (50 * YEAR_MS);
    case 1:
        return (windows_ms + below(d, 3)) % (50 * YEAR_MS);
    default:
        return below(d, 4 * w);
    }
}

static uint64_t draw_gap_ms(drawing_t *d) {
    uint64_t w = d->history->window_ms;
    uint64_t spacing_ms = w / d->limit[0];

    if (d->history->is_dense && below(d, 32) != 0) { return below(d, 4); }

    switch (below(d, 16)) {
    case 0:
        return idle_gap_ms(d);
    case 1:
        return border_gap_ms(d);
    case 2:
        return leaving_gap_ms(d);
    case 3:
        return spacing_ms + below(d, 3);
    case 4:
    case 5:
        return below(d, spacing_ms + 1);
    case 6:
        return below(d, w / 4);
    case 7:
    case 8:
        return below(d, w / (1 + below(d, 60)));
    case 9:
    case 10:
        return 1 + below(d, 3);
    default:
        return 0;
    }
}

static uint32_t draw_cost(drawing_t *d, uint32_t limit) {
    switch (below(d, 16)) {
    case 0:
        return 0;
    case 1:
        return limit + (uint32_t)below(d, 2);
    case 2:
        return 1 + (uint32_t)below(d, limit);
    case 3:
        return below(d, 4) ? 1 : UINT32_MAX >> below(d, 32);
    case 4:
    case 5:
    case 6:
        return 1 + (uint32_t)below(d, limit / 4 + 1);
    default:
        return 1 + (uint32_t)below(d, limit / 16 + 1);
    }
}

static void draw_request(drawing_t *d) {
    history_t *h = d->history;
    request_t *r = &h->request[d->n];
    uint64_t back_ms = 0;

    if (!h->is_steady && below(d, 4) == 0) { back_ms = below(d, BACK_MS); }

    d->now_ms += draw_gap_ms(d);
    r->now_ms = d->now_ms > back_ms ? d->now_ms - back_ms : 0;

    /* before the clock stepped back another key may have had the slot */
    r->key = h->is_steady && !h->is_dense ? below(d, HISTORY_KEYS) : 0;

    r->limit = d->limit[r->key];

    if (h->limits == HISTORY_LIMIT_A_REQUEST && below(d, 4) == 0) {
        r->limit = below(d, 2) ? 1 + (uint32_t)below(d, r->limit) : draw_limit(d);
    }

    r->cost = draw_cost(d, r->limit);
    d->n++;
}

void history_draw(history_t *history, uint64_t seed) {
    drawing_t d = {.history = history, .random = seed};

    memset(history, 0, sizeof(*history));

    history->seed = seed;
    history->is_dense = below(&d, 8) == 0;
    history->window_ms
        = history->is_dense ? kWindowMinMs + below(&d, 100) : random_window_ms(&d.random);
    history->offset_ms = below(&d, 2) ? 0 : below(&d, 50 * YEAR_MS);
    history->burst = below(&d, 2) ? 0 : draw_limit(&d);
    history->undelayed = seed % 3 == 0 ? 0 : seed % 3 == 1 ? history->burst / 2 : kNeverDelayed;
    history->is_steady = below(&d, 4) != 0;
    history->limits = (history_limits_t)below(&d, HISTORY_LIMITS);

    d.now_ms = any_digits(&d, 40);

    for (size_t key = 0; key < HISTORY_KEYS; key++) {
        d.limit[key]
            = key == 0 || history->limits == HISTORY_LIMIT_A_KEY ? draw_limit(&d) : d.limit[0];
    }

    while (d.n < HISTORY_LENGTH) {
        draw_request(&d);
    }
}
