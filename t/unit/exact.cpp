/* Copyright (C) the limit_sliding authors */

#include "exact.hpp"

#include <initializer_list>
#include <string.h>

/* ---- time ---- */

static uint64_t window_ms(const exact_t *exact) { return exact->policy->window_ms; }

static uint64_t parts(const exact_t *exact) {
    return exact->policy->precision == 0 ? 1 : exact->policy->precision;
}

/* The part of a window, or the window, that holds a moment. */
static uint64_t period_of(const exact_t *exact, uint64_t at_ms) {
    return (at_ms + exact->offset_ms) * parts(exact) / window_ms(exact);
}

static uint64_t latest_ms(const exact_t *exact) {
    return exact->n == 0 ? 0 : exact->event[exact->n - 1].at_ms;
}

static uint64_t later_of(const exact_t *exact, uint64_t now_ms) {
    return now_ms > latest_ms(exact) ? now_ms : latest_ms(exact);
}

/* ---- the bound ---- */

static unsigned bits_of(uint64_t n) { return n == 0 ? 0 : 64 - (unsigned)__builtin_clzll(n); }

/* Of a bucket's state. */
static unsigned time_bits(const Policy *policy) {
    unsigned bits = bits_of(policy->window_ms) + bits_of(policy->burst) + 2;

    return bits < 24 ? 24 : bits > 34 ? 34 : bits;
}

/* What runs off while times are told apart is the most that a bucket holds. */
static uint64_t bounded(const Policy *policy, uint64_t burst, uint32_t limit) {
    uint64_t most = ((uint64_t)limit << (time_bits(policy) - 2)) / policy->window_ms;

    return burst < most ? burst : most;
}

uint64_t exact_capacity(const Policy *policy, uint32_t limit) {
    switch (policy->algorithm) {
    case Algorithm::kTokenBucket:
        return policy->burst == 0 ? limit : bounded(policy, policy->burst, limit);
    case Algorithm::kLeakyBucket:
        return bounded(policy, policy->burst + 1ull, limit);
    default:
        return limit;
    }
}

/* ---- what is used ---- */

/*
 * Under precision=auto the parts of a window follow from the limit: so many for
 * limits up to that.  Of the first four, the requests of all parts together
 * are no more than that, of the others those of each.
 */
static const struct {
    uint64_t limit;
    unsigned parts;
    int is_sum;
} auto_parts[]
    = {{3, 40, 1},  {7, 36, 1},  {15, 28, 1},  {21, 22, 1},   {31, 7, 0},        {63, 6, 0},
       {127, 5, 0}, {255, 4, 0}, {2047, 3, 0}, {16383, 2, 0}, {UINT64_MAX, 1, 0}};

/* A part of a window, as of another number of parts: that in which it ends. */
static uint64_t moved(uint64_t part, unsigned from, unsigned to) {
    return ((part + 1) * to + from - 1) / from - 1;
}

static uint64_t newest_part(const exact_t *exact, unsigned n) {
    return exact->n == 0 ? 0 : moved(exact->event[exact->n - 1].part, exact->parts, n);
}

/* Had all requests of a counter expired if its parts had stayed as they are? */
static int is_over(const exact_t *exact, uint64_t now_ms) {
    return exact->n == 0
           || exact->event[exact->n - 1].part + exact->parts
                  < (now_ms + exact->offset_ms) * exact->parts / window_ms(exact);
}

/* Is there room for the key's requests, in parts that end where longer ones do? */
static int has_room(const exact_t *exact, size_t row) {
    unsigned n = auto_parts[row].parts;
    uint64_t all = 0;
    uint64_t same = 0;
    uint64_t before = UINT64_MAX;

    if (n > exact->parts && n % exact->parts != 0) { return 0; }

    for (size_t i = exact->first; i < exact->n; i++) {
        uint64_t part = moved(exact->event[i].part, exact->parts, n);

        if (part + n < newest_part(exact, n)) { continue; }

        same = (part == before ? same : 0) + exact->event[i].cost;
        all += exact->event[i].cost;
        before = part;

        if ((auto_parts[row].is_sum ? all : same) > auto_parts[row].limit) { return 0; }
    }

    return 1;
}

/* Into how many parts the window is cut for a request under this limit. */
static unsigned parts_under(const exact_t *exact, uint64_t now_ms, uint64_t limit) {
    size_t row = 0;

    if (exact->policy->precision != 0) { return exact->policy->precision; }

    while (auto_parts[row].limit < limit || !(is_over(exact, now_ms) || has_room(exact, row))) {
        row++;
    }

    return auto_parts[row].parts;
}

/* What is used of a counter. */
static wide_t counted(const exact_t *exact, uint64_t now_ms, uint64_t limit) {
    unsigned n = parts_under(exact, now_ms, limit);
    uint64_t w = window_ms(exact);
    uint64_t units = (now_ms + exact->offset_ms) * n;
    uint64_t present = units / w;
    uint64_t elapsed = units % w;
    wide_t all = 0;
    wide_t oldest = 0;
    wide_t faded;

    if (is_over(exact, now_ms)) { return 0; }

    if (present < newest_part(exact, n)) {
        present = newest_part(exact, n);
        elapsed = 0;
    }

    for (size_t i = exact->first; i < exact->n; i++) {
        uint64_t part = moved(exact->event[i].part, exact->parts, n);

        if (part + n >= present) { all += exact->event[i].cost; }

        if (part + n == present) { oldest += exact->event[i].cost; }
    }

    faded = exact->policy->strict ? 0 : oldest * elapsed;

    if (exact->policy->precision == 0 && n > 1 && faded > (wide_t)(limit / n) * w) {
        faded = (wide_t)(limit / n) * w;
    }

    return all * w - faded;
}

/* Gives the last event its part, and all others theirs among as many. */
static void record_part(exact_t *exact, unsigned n) {
    exact_event_t *last = &exact->event[exact->n - 1];
    uint64_t part = (last->at_ms + exact->offset_ms) * n / window_ms(exact);

    for (size_t i = exact->first; i + 1 < exact->n; i++) {
        exact->event[i].part = moved(exact->event[i].part, exact->parts, n);

        if (exact->event[i].part > part) { part = exact->event[i].part; }
    }

    last->part = part;
    exact->parts = n;

    while (exact->event[exact->first].part + n < part) {
        exact->first++;
    }
}

static uint64_t weight(const exact_t *exact, uint64_t at_ms, uint64_t now_ms) {
    uint64_t w = window_ms(exact);
    uint64_t later_ms = later_of(exact, now_ms);

    switch (exact->policy->algorithm) {
    case Algorithm::kLog:
        return later_ms - at_ms < w ? w : 0;
    default:
        return period_of(exact, at_ms) == period_of(exact, later_ms) ? w : 0;
    }
}

static wide_t sum_of_weights(const exact_t *exact, uint64_t now_ms) {
    wide_t total = 0;

    for (size_t i = exact->n; i-- > 0;) {
        const exact_event_t *e = &exact->event[i];
        uint64_t weight_ms = weight(exact, e->at_ms, now_ms);

        if (weight_ms == 0) { break; /* older ones weigh no more */ }

        total += (wide_t)e->cost * weight_ms;
    }

    return total;
}

static int is_counter(const exact_t *exact) {
    return exact->policy->algorithm == Algorithm::kCounter;
}

static wide_t full(const exact_t *exact, uint32_t limit) {
    return (wide_t)exact_capacity(exact->policy, limit) * window_ms(exact);
}

/* ---- buckets ---- */

/* What a state has room for, as it is or in 2^-f of a request. */
static unsigned value_bits(const Policy *policy) { return 57 - time_bits(policy); }

/* The most by which a state that was made under this limit is rounded. */
static wide_t rounding_under(const exact_t *exact, uint32_t limit) {
    const Policy *policy = exact->policy;
    unsigned queue = policy->algorithm == Algorithm::kLeakyBucket;
    unsigned octal = (bits_of(limit) + 2) / 3 * 3;
    unsigned whole = policy->burst + queue > 0 ? bits_of(policy->burst + queue)
                     : octal > 22              ? 22
                                               : octal;

    return (window_ms(exact) >> (value_bits(policy) - whole)) + 1;
}

/* Is a state of so much not as exact as it gets? */
static int is_large(const exact_t *exact, wide_t used) {
    return used >> value_bits(exact->policy) != 0;
}

/* How long a bucket takes to fill, under any limit. */
static uint64_t longest_ms(const exact_t *exact) {
    uint64_t most = 1ull << (time_bits(exact->policy) - 2);
    uint64_t requests
        = exact->policy->burst + (exact->policy->algorithm == Algorithm::kLeakyBucket);

    requests += requests == 0;

    return requests * window_ms(exact) < most ? requests * window_ms(exact) : most;
}

/* Is the core's state known? */
static int is_exact(const exact_t *exact) {
    const exact_level_t *least = &exact->level[EXACT_LEAST];
    const exact_level_t *most = &exact->level[EXACT_MOST];

    return least->used == most->used && least->at_ms == most->at_ms && !is_large(exact, most->used);
}

/* By how much less or more a request may find used under this limit. */
static wide_t misread(const exact_t *exact, uint32_t limit) {
    return exact->n > 0 && exact->event[exact->n - 1].limit != limit
                   && is_large(exact, exact->level[EXACT_MOST].used)
               ? exact->rounding
               : 0;
}

static wide_t at_level(const exact_t *exact, uint32_t limit, exact_side_t side) {
    wide_t level = exact->level[side].used;
    wide_t off = misread(exact, limit);

    if (side == EXACT_MOST) { return level + off; }

    return level > off ? level - off : 0;
}

static uint64_t elapsed_ms(const exact_t *exact, uint64_t now_ms, exact_side_t side) {
    uint64_t at_ms = exact->level[side].at_ms;

    return now_ms > at_ms ? now_ms - at_ms : 0;
}

static wide_t run_off(const exact_t *exact, wide_t level, uint64_t now_ms, uint32_t limit,
                      exact_side_t side) {
    wide_t gone = (wide_t)limit * elapsed_ms(exact, now_ms, side);

    return level > gone ? level - gone : 0;
}

/*
 * What a higher limit has admitted beyond this one's bucket.  It is set aside
 * in whole milliseconds, so a bucket may be empty for one more.
 */
static wide_t excess(const exact_t *exact, uint32_t limit, exact_side_t side) {
    wide_t level = at_level(exact, limit, side);
    wide_t above = level > full(exact, limit) ? level - full(exact, limit) : 0;

    if (is_exact(exact)) { return above / limit * limit; }

    if (side == EXACT_LEAST) { return above; }

    return above <= exact->rounding + limit ? 0 : above - exact->rounding - limit;
}

static wide_t without_excess(const exact_t *exact, uint64_t now_ms, uint32_t limit,
                             exact_side_t side) {
    return run_off(exact, at_level(exact, limit, side) - excess(exact, limit, side), now_ms, limit,
                   side);
}

/* A bucket is never more than empty. */
static wide_t bucket_used(const exact_t *exact, uint64_t now_ms, uint32_t limit,
                          exact_side_t side) {
    wide_t level = without_excess(exact, now_ms, limit, side);

    return level < full(exact, limit) ? level : full(exact, limit);
}

static int is_bucket(const exact_t *exact) {
    return exact->policy->algorithm == Algorithm::kTokenBucket
           || exact->policy->algorithm == Algorithm::kLeakyBucket;
}

wide_t exact_used(const exact_t *exact, uint64_t now_ms, uint32_t limit, exact_side_t side) {
    return is_bucket(exact)    ? bucket_used(exact, now_ms, limit, side)
           : is_counter(exact) ? counted(exact, now_ms, limit)
                               : sum_of_weights(exact, now_ms);
}

/* ---- what follows from it ---- */

/* What the key had used with such a request, and what it may use. */
static wide_t wanted(const exact_t *exact, uint64_t now_ms, uint32_t limit, uint32_t cost,
                     exact_side_t side) {
    return exact_used(exact, now_ms, limit, side) + (wide_t)cost * window_ms(exact);
}

int exact_fits(const exact_t *exact, uint64_t now_ms, uint32_t limit, uint32_t cost,
               exact_side_t side) {
    return wanted(exact, now_ms, limit, cost, side) <= full(exact, limit);
}

uint64_t exact_left(const exact_t *exact, uint64_t now_ms, uint32_t limit, exact_side_t side) {
    wide_t taken = exact_used(exact, now_ms, limit, side);

    return taken >= full(exact, limit)
               ? 0
               : (uint64_t)((full(exact, limit) - taken) / window_ms(exact));
}

static uint64_t thousandths_above(const exact_t *exact, wide_t amount, wide_t bound) {
    wide_t w = window_ms(exact);

    return amount <= bound ? 0 : (uint64_t)(((amount - bound) * 1000 + w - 1) / w);
}

uint64_t exact_excess(const exact_t *exact, uint64_t now_ms, uint32_t limit, uint32_t cost,
                      exact_side_t side) {
    return thousandths_above(exact, wanted(exact, now_ms, limit, cost, side), full(exact, limit));
}

/* ---- what is remembered ---- */

/* With a request of this cost, which is admitted. */
static exact_level_t level_with(const exact_t *exact, uint64_t now_ms, uint32_t limit,
                                uint32_t cost, exact_side_t side) {
    uint64_t at_ms = now_ms > exact->level[side].at_ms ? now_ms : exact->level[side].at_ms;
    wide_t view = without_excess(exact, now_ms, limit, side);
    wide_t wanted = view + (wide_t)cost * window_ms(exact);
    exact_level_t level = {wanted, at_ms};

    if (excess(exact, limit, side) > 0) {
        wide_t rest = run_off(exact, at_level(exact, limit, side), now_ms, limit, side) - view;
        uint64_t ago_ms = 0;

        /* after a window it has run off under the limit that admitted it */
        if (elapsed_ms(exact, now_ms, side) >= longest_ms(exact)) { rest = 0; }

        /*
         * As of the time when it was empty, had it been admitted then.  Where
         * the core's state is not known, neither is that time.
         */
        if (rest > 0 && wanted < full(exact, limit) && (is_exact(exact) || side == EXACT_LEAST)) {
            ago_ms = (uint64_t)((full(exact, limit) - wanted + limit - 1) / limit);
            ago_ms += is_exact(exact) ? 0 : 2 + (uint64_t)exact->rounding / limit;
        }

        level.used += (rest + limit - 1) / limit * limit + (wide_t)ago_ms * limit;
        level.at_ms -= ago_ms;
    }

    return level;
}

static void record_level(exact_t *exact, const exact_event_t *event, uint64_t now_ms) {
    const exact_event_t *last = exact->n == 0 ? NULL : &exact->event[exact->n - 1];
    wide_t rounding = rounding_under(exact, event->limit);
    uint64_t wraps_ms = 1ull << time_bits(exact->policy);
    exact_level_t level[2];

    for (exact_side_t side : {EXACT_LEAST, EXACT_MOST}) {
        level[side] = level_with(exact, now_ms, event->limit, event->cost, side);
    }

    if (level[EXACT_MOST].used == (wide_t)event->cost * window_ms(exact)) {
        exact->rounding = 0; /* it was empty */
    }

    if (last == NULL || exact->rounding < rounding || last->limit != event->limit
        || (last->at_ms + exact->offset_ms) / wraps_ms
               != (event->at_ms + exact->offset_ms) / wraps_ms) {
        exact->is_rounded = 0;
    }

    exact->rounding = exact->rounding > rounding ? exact->rounding : rounding;

    if (!exact->is_rounded && is_large(exact, level[EXACT_MOST].used)) {
        level[EXACT_MOST].used += exact->rounding;
        exact->is_rounded = 1;
    }

    memcpy(exact->level, level, sizeof(level));
}

void exact_record(exact_t *exact, uint64_t now_ms, uint32_t limit, uint32_t cost) {
    exact_event_t event = {later_of(exact, now_ms), limit, cost, 0};
    unsigned n = is_counter(exact) ? parts_under(exact, now_ms, limit) : 0;

    if (cost == 0) { return; }

    record_level(exact, &event, now_ms);

    if (is_counter(exact) && is_over(exact, now_ms)) { exact->first = exact->n; }

    exact->event[exact->n++] = event;

    if (is_counter(exact)) { record_part(exact, n); }
}

/* The queue with such a request; if it was admitted, as described after it. */
static wide_t queue_with(const exact_t *exact, uint64_t now_ms, uint32_t limit, uint32_t cost,
                         exact_side_t side) {
    wide_t before = wanted(exact, now_ms, limit, cost, side);
    wide_t after = before;

    if (side == EXACT_MOST && is_large(exact, before)) { after += rounding_under(exact, limit); }

    after = after < full(exact, limit) ? after : full(exact, limit);

    return side == EXACT_LEAST || before > after ? before : after;
}

uint64_t exact_queued(const exact_t *exact, uint64_t now_ms, uint32_t limit, uint32_t cost,
                      exact_side_t side) {
    return thousandths_above(exact, queue_with(exact, now_ms, limit, cost, side), window_ms(exact));
}

uint64_t exact_delay_ms(const exact_t *exact, uint64_t now_ms, uint32_t limit, uint32_t cost,
                        exact_side_t side) {
    wide_t ahead = queue_with(exact, now_ms, limit, cost, side) - (wide_t)cost * window_ms(exact);
    wide_t undelayed = (wide_t)exact->policy->undelayed * window_ms(exact);

    if (ahead <= undelayed) { return 0; }

    uint64_t at_ms = exact->level[side].at_ms;

    return (at_ms > now_ms ? at_ms - now_ms : 0) + (uint64_t)((ahead - undelayed) / limit);
}

/* ---- what is promised ---- */

struct interval_t {
    uint64_t span_ms;  /* of the interval, which ends with the last event */
    uint64_t total;    /* admitted in it, the last event included */
    uint32_t limit;    /* of the last event */
    uint32_t most;     /* largest limit in the interval */
    uint64_t capacity; /* of all buckets in the interval, of one each limit */
    wide_t misread;    /* at most, at changes of the limit in the interval */
};

/*
 * A bucket of a lower limit is refilled while that of a higher one is, so both
 * may be used at once; but none of it faster than at the highest.
 *
 * A counter of n parts takes the window, to a part of it: no more than the limit
 * in (n - 1)/n of a window.  In a whole one it admits less than twice the limit
 * (all of one limit at the end of a part weighs little when the part n further
 * ends), with precision=auto an n-th of it more, and strictly none.
 */
static int counter_promises(const exact_t *exact, const interval_t *i) {
    wide_t w = window_ms(exact);
    wide_t n = exact->parts;
    uint64_t over = exact->policy->precision == 0 && n > 1 ? i->limit / exact->parts : i->most - 1;

    if (exact->policy->strict) { return i->span_ms >= w || i->total <= i->limit; }

    if (i->span_ms * n < w * (n - 1)) { return i->total <= i->limit; }

    return i->span_ms >= w || i->total <= (uint64_t)i->limit + over;
}

static int promises(const exact_t *exact, const interval_t *i) {
    wide_t w = window_ms(exact);
    uint64_t first_ms = latest_ms(exact) - i->span_ms;

    switch (exact->policy->algorithm) {
    case Algorithm::kLog:
        return i->span_ms >= w || i->total <= i->limit;
    case Algorithm::kFixed:
        return period_of(exact, first_ms) != period_of(exact, latest_ms(exact))
               || i->total <= i->limit;
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
        return i->total * w <= i->capacity * w + (wide_t)i->most * i->span_ms + i->misread;
    default:
        return counter_promises(exact, i);
    }
}

/* Has no later event the same limit? */
static int is_first_of_limit(const exact_t *exact, size_t i) {
    for (size_t j = i + 1; j < exact->n; j++) {
        if (exact->event[j].limit == exact->event[i].limit) { return 0; }
    }

    return 1;
}

int exact_keeps_promise(const exact_t *exact) {
    interval_t interval = {0};

    if (exact->n == 0) { return 1; }

    interval.limit = exact->event[exact->n - 1].limit;

    for (size_t i = exact->n; i-- > 0;) {
        const exact_event_t *e = &exact->event[i];
        uint64_t capacity = exact_capacity(exact->policy, e->limit);

        interval.span_ms = latest_ms(exact) - e->at_ms;
        interval.total += e->cost;
        interval.most = e->limit > interval.most ? e->limit : interval.most;
        interval.capacity += is_first_of_limit(exact, i) ? capacity : 0;

        if (!promises(exact, &interval)) { return 0; }

        if (i > 0 && e[-1].limit != e->limit
            && is_large(exact,
                        exact_capacity(exact->policy, interval.most) * (wide_t)window_ms(exact))) {
            interval.misread += rounding_under(exact, interval.most);
        }
    }

    return 1;
}
