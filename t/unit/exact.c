/*
 * Copyright (C) the limit_sliding authors
 */

#include "exact.h"

/* ---- time ---- */

static uint64_t window_ms(const exact_t *exact)
{
    return exact->policy->window_ms;
}

static uint64_t parts(const exact_t *exact)
{
    return exact->policy->precision == 0 ? 1 : exact->policy->precision;
}

/* The part of a window, or the window, that holds a moment. */
static uint64_t period_of(const exact_t *exact, uint64_t at_ms)
{
    return (at_ms + exact->offset_ms) * parts(exact) / window_ms(exact);
}

static uint64_t latest_ms(const exact_t *exact)
{
    return exact->n == 0 ? 0 : exact->event[exact->n - 1].at_ms;
}

static uint64_t later_of(const exact_t *exact, uint64_t now_ms)
{
    return now_ms > latest_ms(exact) ? now_ms : latest_ms(exact);
}

/* ---- the bound ---- */

static unsigned bits_of(uint64_t n)
{
    return n == 0 ? 0 : 64 - (unsigned)__builtin_clzll(n);
}

/* Of a bucket's state. */
static unsigned time_bits(const limit_sliding_policy_t *policy)
{
    unsigned bits = bits_of(policy->window_ms) + bits_of(policy->burst) + 2;

    return bits < 24 ? 24 : bits > 34 ? 34 : bits;
}

/* What runs off while times are told apart is the most that a bucket holds. */
static uint64_t bounded(const limit_sliding_policy_t *policy, uint64_t burst,
                        uint32_t limit)
{
    uint64_t most
        = ((uint64_t)limit << (time_bits(policy) - 2)) / policy->window_ms;

    return burst < most ? burst : most;
}

uint64_t exact_capacity(const limit_sliding_policy_t *policy, uint32_t limit)
{
    switch (policy->algorithm) {
    case LIMIT_SLIDING_TOKEN_BUCKET:
        return policy->burst == 0 ? limit
                                  : bounded(policy, policy->burst, limit);
    case LIMIT_SLIDING_LEAKY_BUCKET:
        return bounded(policy, policy->burst + 1ull, limit);
    default:
        return limit;
    }
}

/* ---- what is used ---- */

/* Of one request, 0 .. w: how much of it counts.  It only falls with time. */
static uint64_t counter_weight(const exact_t *exact, uint64_t at_ms,
                               uint64_t now_ms)
{
    uint64_t w = window_ms(exact);
    uint64_t n = parts(exact);
    uint64_t latest = period_of(exact, latest_ms(exact));
    uint64_t present = period_of(exact, now_ms);
    uint64_t elapsed = (now_ms + exact->offset_ms) * n % w; /* of w */
    uint64_t age;

    if (present < latest) {
        present = latest;
        elapsed = 0;
    }

    age = present - period_of(exact, at_ms);

    return age < n ? w : age == n ? w - elapsed : 0;
}

static uint64_t weight(const exact_t *exact, uint64_t at_ms, uint64_t now_ms)
{
    uint64_t w = window_ms(exact);
    uint64_t later_ms = later_of(exact, now_ms);

    switch (exact->policy->algorithm) {
    case LIMIT_SLIDING_LOG:
        return later_ms - at_ms < w ? w : 0;
    case LIMIT_SLIDING_FIXED:
        return period_of(exact, at_ms) == period_of(exact, later_ms) ? w : 0;
    default:
        return counter_weight(exact, at_ms, now_ms);
    }
}

static wide_t sum_of_weights(const exact_t *exact, uint64_t now_ms)
{
    wide_t total = 0;

    for (size_t i = exact->n; i-- > 0;) {
        const exact_event_t *e = &exact->event[i];
        uint64_t weight_ms = weight(exact, e->at_ms, now_ms);

        if (weight_ms == 0) {
            break; /* older ones weigh no more */
        }

        total += (wide_t)e->cost * weight_ms;
    }

    return total;
}

static wide_t full(const exact_t *exact, uint32_t limit)
{
    return (wide_t)exact_capacity(exact->policy, limit) * window_ms(exact);
}

static wide_t run_off(const exact_t *exact, wide_t level, uint64_t now_ms,
                      uint32_t limit)
{
    uint64_t elapsed_ms = later_of(exact, now_ms) - latest_ms(exact);
    wide_t gone = (wide_t)limit * elapsed_ms;

    return level > gone ? level - gone : 0;
}

/* A bucket is no more than full, whatever a higher limit has admitted. */
static wide_t bucket_used(const exact_t *exact, uint64_t now_ms, uint32_t limit,
                          exact_side_t side)
{
    wide_t level = exact->level[side];

    level = level < full(exact, limit) ? level : full(exact, limit);

    return run_off(exact, level, now_ms, limit);
}

static int is_bucket(const exact_t *exact)
{
    return exact->policy->algorithm == LIMIT_SLIDING_TOKEN_BUCKET
           || exact->policy->algorithm == LIMIT_SLIDING_LEAKY_BUCKET;
}

wide_t exact_used(const exact_t *exact, uint64_t now_ms, uint32_t limit,
                  exact_side_t side)
{
    return is_bucket(exact) ? bucket_used(exact, now_ms, limit, side)
                            : sum_of_weights(exact, now_ms);
}

/* ---- what follows from it ---- */

/* What the key had used with such a request, and what it may use. */
static wide_t wanted(const exact_t *exact, uint64_t now_ms, uint32_t limit,
                     uint32_t cost, exact_side_t side)
{
    return exact_used(exact, now_ms, limit, side)
           + (wide_t)cost * window_ms(exact);
}

int exact_fits(const exact_t *exact, uint64_t now_ms, uint32_t limit,
               uint32_t cost, exact_side_t side)
{
    return wanted(exact, now_ms, limit, cost, side) <= full(exact, limit);
}

uint64_t exact_left(const exact_t *exact, uint64_t now_ms, uint32_t limit,
                    exact_side_t side)
{
    wide_t taken = exact_used(exact, now_ms, limit, side);

    return taken >= full(exact, limit)
               ? 0
               : (uint64_t)((full(exact, limit) - taken) / window_ms(exact));
}

static uint64_t thousandths_above(const exact_t *exact, wide_t amount,
                                  wide_t bound)
{
    wide_t w = window_ms(exact);

    return amount <= bound ? 0
                           : (uint64_t)(((amount - bound) * 1000 + w - 1) / w);
}

uint64_t exact_excess(const exact_t *exact, uint64_t now_ms, uint32_t limit,
                      uint32_t cost, exact_side_t side)
{
    return thousandths_above(exact, wanted(exact, now_ms, limit, cost, side),
                             full(exact, limit));
}

/* ---- what is remembered ---- */

/*
 * A bucket's state is a time, of as many bits as tell four times the longest
 * that it takes to run off, 24 or more, and a floating point number in the rest
 * of 56 bits.
 */
static wide_t rounded_up(const exact_t *exact, wide_t level)
{
    unsigned rest = 56 - time_bits(exact->policy);

    return level >> (rest - 1) == 0 ? level : level + (level >> (rest - 1)) + 1;
}

/*
 * After an event.  A bucket that nothing was left in is as good as new: the
 * core may or may not know any more what a higher limit had admitted to it.
 */
static wide_t level_with(const exact_t *exact, uint64_t now_ms, uint32_t limit,
                         uint32_t cost, exact_side_t side)
{
    wide_t more = (wide_t)cost * window_ms(exact);
    wide_t level = run_off(exact, exact->level[side], now_ms, limit);

    if (side == EXACT_MOST) {
        return rounded_up(exact, level + more);
    }

    return bucket_used(exact, now_ms, limit, side) == 0 ? more : level + more;
}

void exact_record(exact_t *exact, uint64_t now_ms, uint32_t limit,
                  uint32_t cost)
{
    exact_event_t event = {later_of(exact, now_ms), limit, cost};

    if (cost == 0) {
        return;
    }

    for (exact_side_t side = EXACT_LEAST; side <= EXACT_MOST; side++) {
        exact->level[side] = level_with(exact, now_ms, limit, cost, side);
    }

    exact->event[exact->n++] = event;
}

/* The queue with such a request; if it was admitted, as described after it. */
static wide_t queue_with(const exact_t *exact, uint64_t now_ms, uint32_t limit,
                         uint32_t cost, exact_side_t side)
{
    wide_t before = wanted(exact, now_ms, limit, cost, side);
    wide_t after = level_with(exact, now_ms, limit, cost, side);

    after = after < full(exact, limit) ? after : full(exact, limit);

    return side == EXACT_LEAST || before > after ? before : after;
}

uint64_t exact_queued(const exact_t *exact, uint64_t now_ms, uint32_t limit,
                      uint32_t cost, exact_side_t side)
{
    return thousandths_above(
        exact, queue_with(exact, now_ms, limit, cost, side), window_ms(exact));
}

uint64_t exact_delay_ms(const exact_t *exact, uint64_t now_ms, uint32_t limit,
                        uint32_t cost, exact_side_t side)
{
    wide_t ahead = queue_with(exact, now_ms, limit, cost, side)
                   - (wide_t)cost * window_ms(exact);

    return later_of(exact, now_ms) - now_ms
           + (uint64_t)((ahead + limit - 1) / limit);
}

/* ---- what is promised ---- */

typedef struct {
    uint64_t span_ms;  /* of the interval, which ends with the last event */
    uint64_t total;    /* admitted in it, the last event included */
    uint32_t limit;    /* of the last event */
    uint32_t most;     /* largest limit in the interval */
    uint64_t capacity; /* largest capacity in the interval */
} interval_t;

/*
 * Precision n takes the window, to a part of it: no more than the limit in
 * (n - 1)/n of a window, and less than twice the limit in a whole one.  (All of
 * one limit at the end of a part weighs little when the part n further ends.)
 */
static int counter_promises(const exact_t *exact, const interval_t *i)
{
    wide_t w = window_ms(exact);
    wide_t n = parts(exact);

    if (i->span_ms * n < w * (n - 1)) {
        return i->total <= i->limit;
    }

    return i->span_ms >= w || i->total < (uint64_t)i->limit + i->most;
}

static int promises(const exact_t *exact, const interval_t *i)
{
    wide_t w = window_ms(exact);
    uint64_t first_ms = latest_ms(exact) - i->span_ms;

    switch (exact->policy->algorithm) {
    case LIMIT_SLIDING_LOG:
        return i->span_ms >= w || i->total <= i->limit;
    case LIMIT_SLIDING_FIXED:
        return period_of(exact, first_ms) != period_of(exact, latest_ms(exact))
               || i->total <= i->limit;
    case LIMIT_SLIDING_TOKEN_BUCKET:
    case LIMIT_SLIDING_LEAKY_BUCKET:
        return i->total * w <= i->capacity * w + (wide_t)i->most * i->span_ms;
    default:
        return counter_promises(exact, i);
    }
}

int exact_keeps_promise(const exact_t *exact)
{
    interval_t interval = {0};

    if (exact->n == 0) {
        return 1;
    }

    interval.limit = exact->event[exact->n - 1].limit;

    for (size_t i = exact->n; i-- > 0;) {
        const exact_event_t *e = &exact->event[i];
        uint64_t capacity = exact_capacity(exact->policy, e->limit);

        interval.span_ms = latest_ms(exact) - e->at_ms;
        interval.total += e->cost;
        interval.most = e->limit > interval.most ? e->limit : interval.most;
        interval.capacity
            = capacity > interval.capacity ? capacity : interval.capacity;

        if (!promises(exact, &interval)) {
            return 0;
        }
    }

    return 1;
}
