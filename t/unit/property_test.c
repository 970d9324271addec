/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * Random histories against an oracle.  SEED=n in the environment runs one of
 * another seed.
 */

#include <stdio.h>

#include "oracle.h"
#include "support.h"

#define HISTORIES 4000
#define REQUESTS LOG_LENGTH
#define KEYS 3
#define LIMITS 4

/* ---- a history: some limits, each with a zone of its own ---- */

typedef struct {
    limit_sliding_zone_t *zone;
    limit_sliding_policy_t policy;
    uint32_t limit;
    oracle_t log[KEYS];
} subject_t;

typedef struct {
    uint64_t seed;
    uint64_t random;
    unsigned step;
    int is_steady; /* the clock never steps back, limits stay */
    uint64_t now_ms;
    size_t limits;
    size_t keys;
    uint64_t shortest_ms; /* window */
    subject_t subject[LIMITS];
} history_t;

/* One request under n of the limits. */
typedef struct {
    size_t n;
    uint64_t now_ms;
    size_t first;
    oracle_t *log[LIMITS];
    limit_sliding_claim_t claim[LIMITS];
} request_t;

#define CHECK(h, condition)                                                    \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fail_msg("SEED=%llu, step %u: %s", (unsigned long long)(h)->seed,  \
                     (h)->step, #condition);                                   \
        }                                                                      \
    } while (0)

/* Uniform in its number of digits, so that small ones come as often. */
static uint64_t random_scale(history_t *h, uint64_t low, uint64_t high)
{
    uint64_t value = low;

    while (value < high && random_below(&h->random, 8) != 0) {
        value += random_below(&h->random, value) + 1;
    }

    return value > high ? high : value;
}

static uint64_t random_window_ms(history_t *h)
{
    static const uint64_t usual_ms[] = {LIMIT_SLIDING_WINDOW_MIN_MS,
                                        SECOND_MS,
                                        MINUTE_MS,
                                        60 * MINUTE_MS,
                                        DAY_MS,
                                        LIMIT_SLIDING_WINDOW_MAX_MS};

    return random_below(&h->random, 2)
               ? usual_ms[random_below(&h->random, LENGTH(usual_ms))]
               : random_scale(h, LIMIT_SLIDING_WINDOW_MIN_MS,
                              LIMIT_SLIDING_WINDOW_MAX_MS);
}

static uint32_t random_cost(history_t *h, uint32_t limit)
{
    switch (random_below(&h->random, 16)) {
    case 0:
        return 0;
    case 1:
        return limit + (uint32_t)random_below(&h->random, 2);
    case 2:
    case 3:
        return (uint32_t)random_below(&h->random, limit) + 1;
    case 4:
        return UINT32_MAX >> random_below(&h->random, 32);
    default:
        return (uint32_t)random_below(&h->random, limit / 8 + 1) + 1;
    }
}

/* From none to 50 years, most often a part of a window. */
static uint64_t random_gap_ms(history_t *h)
{
    uint64_t w = h->subject[0].policy.window_ms;
    uint64_t gap_ms;

    switch (random_below(&h->random, 16)) {
    case 0:
        gap_ms = random_below(&h->random, 4) * w;
        break;
    case 1:
        gap_ms = w - h->now_ms % w;
        break;
    case 2:
        gap_ms = (random_next(&h->random) >> random_below(&h->random, 64))
                 % (50 * YEAR_MS);
        break;
    case 3:
        /* where a window's or an epoch's number might wrap */
        gap_ms = (w << random_below(&h->random, 20)) % (50 * YEAR_MS);
        break;
    case 4:
    case 5:
        return 0;
    default:
        gap_ms = random_below(&h->random, w / 4);
        break;
    }

    return gap_ms + random_below(&h->random, 3);
}

/* Also back, as between workers whose clocks differ. */
static void tick(history_t *h)
{
    uint64_t back_ms = 0;

    h->now_ms += random_gap_ms(h);

    if (!h->is_steady && random_below(&h->random, 8) == 0) {
        back_ms = random_below(
            &h->random, random_below(&h->random, 2) ? 20 : 2 * h->shortest_ms);
    }

    h->now_ms -= back_ms < h->now_ms ? back_ms : h->now_ms;
}

static void begin(history_t *h, uint64_t seed)
{
    memset(h, 0, sizeof(*h));

    h->seed = seed;
    h->random = seed;
    h->is_steady = random_below(&h->random, 2) == 0;
    h->now_ms = random_next(&h->random) >> (24 + random_below(&h->random, 40));
    h->limits = 1 + random_below(&h->random, LIMITS);
    h->shortest_ms = UINT64_MAX;

    /* before the clock stepped back another key may have had the slot */
    h->keys = h->is_steady ? KEYS : 1;

    for (size_t i = 0; i < h->limits; i++) {
        subject_t *s = &h->subject[i];

        s->policy = evicting(random_window_ms(h));
        s->limit = (uint32_t)random_scale(h, 1, LIMIT_MAX);
        s->zone = make_zone(PAIR_BYTES);

        if (s->policy.window_ms < h->shortest_ms) {
            h->shortest_ms = s->policy.window_ms;
        }

        for (size_t key = 0; key < KEYS; key++) {
            s->log[key].window_ms = s->policy.window_ms;
        }
    }
}

static void end(history_t *h)
{
    for (size_t i = 0; i < h->limits; i++) {
        assert_int_equal(stats_of(h->subject[i].zone).evicted, 0);
        free(h->subject[i].zone);
    }
}

static void draw(history_t *h, request_t *r)
{
    size_t start = random_below(&h->random, h->limits);

    r->n = 1 + random_below(&h->random, h->limits);
    r->now_ms = h->now_ms;

    for (size_t i = 0; i < r->n; i++) {
        subject_t *s = &h->subject[(start + i) % h->limits];
        uint64_t key = random_below(&h->random, h->keys);
        uint32_t limit = s->limit;

        if (!h->is_steady && random_below(&h->random, 4) == 0) {
            limit = (uint32_t)random_below(&h->random, LIMIT_MAX) + 1;
        }

        r->log[i] = &s->log[key];
        r->claim[i]
            = claim_of(s->zone, &s->policy, key, limit, random_cost(h, limit));
    }
}

/* ---- what must hold ---- */

static int all_fit(const request_t *r, uint64_t now_ms)
{
    for (size_t i = 0; i < r->n; i++) {
        if (!oracle_fits(r->log[i], now_ms, r->claim[i].limit,
                         r->claim[i].cost)) {
            return 0;
        }
    }

    return 1;
}

static void check_remaining(history_t *h, const request_t *r, size_t i,
                            const limit_sliding_verdict_t *v)
{
    const oracle_t *log = r->log[i];
    uint32_t limit = r->claim[i].limit;
    uint64_t reset_at_ms = r->now_ms + v->reset_ms;

    CHECK(h, v->limit == limit);
    CHECK(h, v->remaining == oracle_left(log, r->now_ms, limit));

    if (v->reset_ms == 0) {
        CHECK(h, v->remaining == limit);
        return;
    }

    CHECK(h, oracle_left(log, reset_at_ms - 1, limit) == v->remaining);
    CHECK(h, oracle_left(log, reset_at_ms, limit) > v->remaining);
}

/* Of one limit's state before it was consumed. */
static void check_rejection(history_t *h, const request_t *r, size_t i)
{
    const limit_sliding_claim_t *c = &r->claim[i];
    limit_sliding_verdict_t v;
    limit_sliding_state_t next;
    uint64_t retry_at_ms;

    limit_sliding_claim_describe(c, r->now_ms, &v);

    CHECK(h,
          v.excess == oracle_excess(r->log[i], r->now_ms, c->limit, c->cost));
    CHECK(h, v.excess > 0);
    check_remaining(h, r, i, &v);

    if (c->cost > c->limit) {
        CHECK(h, v.retry_after_ms == LIMIT_SLIDING_NEVER);
        return;
    }

    CHECK(h, v.retry_after_ms > 0);
    CHECK(h, v.retry_after_ms < LIMIT_SLIDING_NEVER);

    retry_at_ms = r->now_ms + v.retry_after_ms;

    CHECK(h, !oracle_fits(r->log[i], retry_at_ms - 1, c->limit, c->cost));
    CHECK(h, oracle_fits(r->log[i], retry_at_ms, c->limit, c->cost));
    CHECK(h, !limit_sliding_admit(c->policy, c->state, retry_at_ms - 1,
                                  c->limit, c->cost, &next));
    CHECK(h, limit_sliding_admit(c->policy, c->state, retry_at_ms, c->limit,
                                 c->cost, &next));
}

static void check_rejected(history_t *h, const request_t *r, size_t worst)
{
    limit_sliding_verdict_t v;

    CHECK(h, r->claim[worst].outcome == LIMIT_SLIDING_REJECTED);

    for (size_t i = 0; i < r->n; i++) {
        int is_admitted = r->claim[i].outcome == LIMIT_SLIDING_ADMITTED;

        CHECK(h, is_admitted
                     == oracle_fits(r->log[i], r->now_ms, r->claim[i].limit,
                                    r->claim[i].cost));
        if (!is_admitted) {
            check_rejection(h, r, i);
        }
    }

    limit_sliding_claim_describe(&r->claim[worst], r->now_ms, &v);

    if (v.retry_after_ms != LIMIT_SLIDING_NEVER) {
        CHECK(h, all_fit(r, r->now_ms + v.retry_after_ms));
        CHECK(h, !all_fit(r, r->now_ms + v.retry_after_ms - 1));
    } else {
        CHECK(h, r->claim[worst].cost > r->claim[worst].limit);
    }
}

static double share(const request_t *r, size_t i)
{
    return (double)oracle_used(r->log[i], r->now_ms)
           / ((double)r->claim[i].limit * (double)r->log[i]->window_ms);
}

/*
 * Of constant limits on one clock: an interval of the window's length that
 * starts s ms into one window sees what that admitted, P <= L, and of the next
 * what fits at s - 1 at the latest: L - P x (w - s + 1)/w.  With s <= w that
 * is at most 2L - L/w, and no less bound holds for this algorithm.
 */
static void check_interval(history_t *h, const oracle_t *log, uint32_t limit)
{
    uint64_t w = log->window_ms;
    uint64_t first_ms = h->now_ms >= w ? h->now_ms - w + 1 : 0;

    if (h->is_steady) {
        CHECK(h, oracle_sum(log, first_ms, h->now_ms + 1)
                     <= 2ull * limit - (limit + w - 1) / w);
    }
}

static void check_admitted(history_t *h, const request_t *r, size_t tightest)
{
    for (size_t i = 0; i < r->n; i++) {
        const limit_sliding_claim_t *c = &r->claim[i];
        uint32_t before = oracle_left(r->log[i], r->now_ms, c->limit);
        limit_sliding_verdict_t v;

        CHECK(h, c->outcome == LIMIT_SLIDING_ADMITTED);

        oracle_record(r->log[i], r->now_ms, c->cost);
        limit_sliding_claim_describe(c, r->now_ms, &v);

        CHECK(h, v.retry_after_ms == 0);
        CHECK(h, v.excess == 0);
        CHECK(h, v.remaining == before - c->cost);
        check_remaining(h, r, i, &v);
        check_interval(h, r->log[i], c->limit);
    }

    /* the core compares shares as doubles */

    for (size_t i = 0; i < r->n; i++) {
        CHECK(h, share(r, i) <= share(r, tightest) + 1e-12);
    }
}

static void step(history_t *h)
{
    request_t r;
    size_t index;
    int expected;

    tick(h);
    draw(h, &r);

    expected = all_fit(&r, r.now_ms);
    index = limit_sliding_acquire(r.claim, r.n, r.now_ms);

    CHECK(h, index < r.n);
    CHECK(h, (r.claim[index].outcome == LIMIT_SLIDING_ADMITTED) == expected);

    if (expected) {
        check_admitted(h, &r, index);
    } else {
        check_rejected(h, &r, index);
    }
}

static void run_history(uint64_t seed)
{
    static history_t h;

    begin(&h, seed);

    for (h.step = 0; h.step < REQUESTS; h.step++) {
        step(&h);
    }

    end(&h);
}

static void test_histories(void **state)
{
    const char *seed = getenv("SEED");

    (void)state;

    if (seed != NULL) {
        run_history(strtoull(seed, NULL, 10));
        return;
    }

    for (uint64_t i = 1; i <= HISTORIES; i++) {
        run_history(i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories),
    };

    return cmocka_run_group_tests_name("property", tests, NULL, NULL);
}
