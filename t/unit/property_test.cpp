/* Copyright (C) the limit_sliding authors */

/*
 * Several limits of a request, of mixed algorithms, all or nothing: random
 * histories against exact oracles.  SEED=n in the environment runs another.
 */

#include <stdio.h>

#include "exact.hpp"
#include "support.hpp"

#define HISTORIES draws(4000)
#define REQUESTS EXACT_LENGTH
#define KEYS 3
#define LIMITS 4

/* Room for what a log may hold of a history. */
#define ZONE_BYTES (96 * 128 + kZoneAlign)

/* ---- a history: some limits, each with a zone of its own ---- */

struct subject_t {
    Zone *zone;
    Policy policy;
    uint32_t limit;
    exact_t log[KEYS];
};

struct history_t {
    uint64_t seed;
    uint64_t random;
    unsigned step;
    int is_steady; /* the clock never steps back, limits stay */
    uint64_t now_ms;
    size_t limits;
    size_t keys;
    uint64_t shortest_ms; /* window */
    int has_log_or_fixed;
    uint64_t latest_ms;
    subject_t subject[LIMITS];
};

/* One request under n of the limits. */
struct request_t {
    size_t n;
    uint64_t now_ms;
    size_t first;
    exact_t *log[LIMITS];
    Claim claim[LIMITS];
};

#define CHECK(h, condition)                                                                        \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fail_msg("SEED=%llu, step %u: %s", (unsigned long long)(h)->seed, (h)->step,           \
                     #condition);                                                                  \
        }                                                                                          \
    } while (0)

/* Of those that are exact in any state. */
static Policy random_policy(history_t *h) {
    static const Algorithm algorithms[]
        = {Algorithm::kCounter, Algorithm::kCounter, Algorithm::kFixed, Algorithm::kLog};
    Policy policy = evicting(random_window_ms(&h->random));

    policy.algorithm = algorithms[random_below(&h->random, LENGTH(algorithms))];

    if (policy.algorithm == Algorithm::kCounter) {
        policy.precision = random_below(&h->random, 2) ? 1 : (uint32_t)random_below(&h->random, 61);
        policy.strict = policy.precision > 1 && random_below(&h->random, 2) == 0;
    }

    return policy;
}

static uint32_t random_cost(history_t *h, uint32_t limit) {
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
static uint64_t random_gap_ms(history_t *h) {
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
        gap_ms = (random_next(&h->random) >> random_below(&h->random, 64)) % (50 * YEAR_MS);
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

/* Also back, as between workers whose clocks differ.  Logs and fixed windows take what is further
 * ahead than a minute or more for long gone. */
static void tick(history_t *h) {
    uint64_t back_ms = 0, earliest_ms = 0;

    h->now_ms += random_gap_ms(h);
    h->latest_ms = std::max(h->latest_ms, h->now_ms);

    if (!h->is_steady && random_below(&h->random, 8) == 0) {
        back_ms = random_below(&h->random, random_below(&h->random, 2) ? 20 : 2 * h->shortest_ms);
    }

    if (h->has_log_or_fixed && h->latest_ms > MINUTE_MS) { earliest_ms = h->latest_ms - MINUTE_MS; }

    h->now_ms = std::max(h->now_ms - std::min(back_ms, h->now_ms), earliest_ms);
}

static void begin(history_t *h, uint64_t seed) {
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

        s->policy = random_policy(h);
        s->limit = (uint32_t)random_scale(&h->random, 1, LIMIT_MAX);
        h->has_log_or_fixed
            |= s->policy.algorithm == Algorithm::kLog || s->policy.algorithm == Algorithm::kFixed;
        s->zone = make_zone_for(&s->policy, ZONE_BYTES);

        if (s->policy.window_ms < h->shortest_ms) { h->shortest_ms = s->policy.window_ms; }

        for (size_t key = 0; key < KEYS; key++) {
            s->log[key].policy = &s->policy;
        }
    }
}

static void end(history_t *h) {
    for (size_t i = 0; i < h->limits; i++) {
        assert_int_equal(stats_of(h->subject[i].zone).evicted, 0);
        free(h->subject[i].zone);
    }
}

static void draw(history_t *h, request_t *r) {
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
        r->claim[i] = claim_of(s->zone, &s->policy, key, limit, random_cost(h, limit));
    }
}

/* ---- what must hold ---- */

static int all_fit(const request_t *r, uint64_t now_ms) {
    for (size_t i = 0; i < r->n; i++) {
        if (!exact_fits(r->log[i], now_ms, r->claim[i].limit, r->claim[i].cost, EXACT_LEAST)) {
            return 0;
        }
    }

    return 1;
}

static void check_remaining(history_t *h, const request_t *r, size_t i, const Verdict *v) {
    const exact_t *log = r->log[i];
    uint32_t limit = r->claim[i].limit;
    uint64_t reset_at_ms = r->now_ms + v->reset_ms;

    CHECK(h, v->limit == limit);
    CHECK(h, v->remaining == exact_left(log, r->now_ms, limit, EXACT_LEAST));

    if (v->reset_ms == 0) {
        CHECK(h, v->remaining == limit);
        return;
    }

    CHECK(h, exact_left(log, reset_at_ms - 1, limit, EXACT_LEAST) == v->remaining);
    CHECK(h, exact_left(log, reset_at_ms, limit, EXACT_LEAST) > v->remaining);
}

/* Of one limit's state before it was consumed. */
static void check_rejection(history_t *h, const request_t *r, size_t i) {
    const Claim *c = &r->claim[i];
    Verdict v;
    uint64_t retry_at_ms;

    v = c->describe(r->now_ms);

    CHECK(h, v.excess == exact_excess(r->log[i], r->now_ms, c->limit, c->cost, EXACT_LEAST));
    CHECK(h, v.excess > 0);
    check_remaining(h, r, i, &v);

    if (c->cost > c->limit) {
        CHECK(h, v.retry_after_ms == kNever);
        return;
    }

    CHECK(h, v.retry_after_ms > 0);
    CHECK(h, v.retry_after_ms < kNever);

    retry_at_ms = r->now_ms + v.retry_after_ms;

    CHECK(h, !exact_fits(r->log[i], retry_at_ms - 1, c->limit, c->cost, EXACT_LEAST));
    CHECK(h, exact_fits(r->log[i], retry_at_ms, c->limit, c->cost, EXACT_LEAST));
}

static void check_rejected(history_t *h, const request_t *r, size_t worst) {
    Verdict v;

    CHECK(h, r->claim[worst].outcome == Outcome::kRejected);

    for (size_t i = 0; i < r->n; i++) {
        int is_admitted = r->claim[i].outcome == Outcome::kAdmitted;

        CHECK(h, is_admitted
                     == exact_fits(r->log[i], r->now_ms, r->claim[i].limit, r->claim[i].cost,
                                   EXACT_LEAST));
        if (!is_admitted) { check_rejection(h, r, i); }
    }

    v = r->claim[worst].describe(r->now_ms);

    if (v.retry_after_ms != kNever) {
        CHECK(h, all_fit(r, r->now_ms + v.retry_after_ms));
        CHECK(h, !all_fit(r, r->now_ms + v.retry_after_ms - 1));
    } else {
        CHECK(h, r->claim[worst].cost > r->claim[worst].limit);
    }
}

static double share(const request_t *r, size_t i) {
    return (double)exact_used(r->log[i], r->now_ms, r->claim[i].limit, EXACT_LEAST)
           / ((double)r->claim[i].limit * (double)r->claim[i].policy->window_ms);
}

/* The state that records a request may have room for a kind of more parts, which
 * the state before had not. */
static int may_be_cut_finer(const history_t *h, const Claim *c) {
    return !h->is_steady && c->policy->algorithm == Algorithm::kCounter
           && c->policy->precision == 0;
}

static void check_admitted(history_t *h, const request_t *r, size_t tightest) {
    for (size_t i = 0; i < r->n; i++) {
        const Claim *c = &r->claim[i];
        uint32_t before = exact_left(r->log[i], r->now_ms, c->limit, EXACT_LEAST);
        Verdict v;

        CHECK(h, c->outcome == Outcome::kAdmitted);

        exact_record(r->log[i], r->now_ms, c->limit, c->cost);
        v = c->describe(r->now_ms);

        CHECK(h, v.retry_after_ms == 0);
        CHECK(h, v.excess == 0);
        CHECK(h, v.remaining == before - c->cost
                     || (v.remaining < before - c->cost && may_be_cut_finer(h, c)));
        check_remaining(h, r, i, &v);
        CHECK(h, exact_keeps_promise(r->log[i]));
    }

    /* the core compares shares as doubles */

    for (size_t i = 0; i < r->n; i++) {
        CHECK(h, share(r, i) <= share(r, tightest) + 1e-12);
    }
}

static void step(history_t *h) {
    request_t r;
    size_t index;
    int expected;

    tick(h);
    draw(h, &r);

    expected = all_fit(&r, r.now_ms);
    index = limit_sliding::acquire(r.claim, r.n, r.now_ms);

    CHECK(h, index < r.n);
    CHECK(h, (r.claim[index].outcome == Outcome::kAdmitted) == expected);

    if (expected) {
        check_admitted(h, &r, index);
    } else {
        check_rejected(h, &r, index);
    }
}

static void run_history(uint64_t seed) {
    static history_t h;

    begin(&h, seed);

    for (h.step = 0; h.step < REQUESTS; h.step++) {
        step(&h);
    }

    end(&h);
}

static void test_histories(void **state) {
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories),
    };

    return cmocka_run_group_tests_name("property", tests, NULL, NULL);
}
