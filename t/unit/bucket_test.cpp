/* Copyright (C) the limit_sliding authors */

/*
 * Buckets whose burst x window is large, and limits that change, against exact
 * buckets.  SEED=n in the environment runs one random setting, of that seed.
 */

#include "support.hpp"

#define SETTINGS 2000

#define CHECK(game, condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) { fail_game(game, #condition, __LINE__); }                               \
    } while (0)

__extension__ typedef unsigned __int128 wide_t;

/* A bucket as it is defined. */
struct exact_bucket_t {
    wide_t used; /* x w, at its time */
    uint64_t at_ms;
};

/* One key under constant demand. */
struct game_t {
    uint64_t seed;
    Policy policy;
    uint32_t limit;
    State state;
    uint64_t now_ms;
    exact_bucket_t same;   /* what it admitted, in an exact bucket */
    exact_bucket_t greedy; /* an exact bucket under the same demand */
    uint64_t admitted;
    uint64_t due;
};

static void fail_game(const game_t *game, const char *condition, int line) {
    fail_msg("SEED=%llu, algorithm %d, burst %u, window %llu ms, limit %u, at "
             "%llu ms, admitted %llu, due %llu, line %d: %s",
             (unsigned long long)game->seed, game->policy.algorithm, game->policy.burst,
             (unsigned long long)game->policy.window_ms, game->limit,
             (unsigned long long)game->now_ms, (unsigned long long)game->admitted,
             (unsigned long long)game->due, line, condition);
}

static int is_vast(const game_t *game) { return game->policy.capacity(game->limit) > kNarrowMax; }

/* More than 2^22 requests a ms, and a burst: what runs off in less than 256 ms may
 * count for so long. */
static int is_torrent(const game_t *game) { return game->limit >> 22 >= game->policy.window_ms; }

static void run_off(exact_bucket_t *bucket, uint64_t now_ms, uint32_t limit) {
    wide_t gone = (wide_t)(now_ms - bucket->at_ms) * limit;

    bucket->used = bucket->used > gone ? bucket->used - gone : 0;
    bucket->at_ms = now_ms;
}

static int exact_admits(const game_t *game, exact_bucket_t *bucket, uint32_t cost) {
    wide_t w = game->policy.window_ms;
    uint64_t capacity = game->policy.capacity(game->limit);

    run_off(bucket, game->now_ms, game->limit);

    if (bucket->used + cost * w > capacity * w) { return 0; }

    bucket->used += cost * w;

    return 1;
}

static int offer(game_t *game, uint32_t cost) {
    int admitted
        = pure::admit(game->policy, game->state, game->now_ms, game->limit, cost, &game->state);

    if (admitted) {
        CHECK(game, exact_admits(game, &game->same, cost));
        game->admitted += cost;
    }

    if (exact_admits(game, &game->greedy, cost)) {
        game->due += cost;
        return 1;
    }

    return admitted;
}

static uint64_t retry_after_ms(const game_t *game, uint32_t cost) {
    Verdict v;

    v = pure::describe(game->policy, game->state, game->now_ms, game->limit, cost);

    return v.retry_after_ms;
}

/* Fills the bucket, then asks for more than there is, for so many steps. */
static void demand(game_t *game, unsigned steps) {
    uint64_t capacity = game->policy.capacity(game->limit);
    uint64_t random = game->seed;

    game->same.at_ms = game->greedy.at_ms = game->now_ms;
    offer(game, (uint32_t)capacity);
    CHECK(game, game->admitted == capacity);

    for (unsigned i = 0; i < steps; i++) {
        /* a few requests a millisecond at most */
        uint64_t most = game->limit / game->policy.window_ms / 4 + 1;
        uint64_t cost = random_below(&random, 64) == 0 ? most + random_below(&random, 10) : most;
        uint64_t wait_ms;

        cost = cost < capacity ? cost : capacity;
        wait_ms = retry_after_ms(game, (uint32_t)cost);
        game->now_ms += random_below(&random, 4) != 0 || wait_ms <= 1
                            ? wait_ms + random_below(&random, 2)
                            : random_below(&random, wait_ms);

        while (offer(game, (uint32_t)cost)) {}

        CHECK(game,
              is_torrent(game)
                  || (game->due - capacity) * 0.9995 <= (double)(game->admitted - capacity + cost));
    }
}

/* A bucket that holds n admits n, though it begins to run off meanwhile.  A vast
 * one may lack the last request if its state lacks some of its time. */
static void use_up(game_t *game) {
    uint64_t capacity = game->policy.capacity(game->limit);
    uint32_t cost = (uint32_t)(capacity / 1000 + 1);
    uint64_t random = game->seed;

    game->state = 0;
    game->admitted = 0;

    while (game->admitted < capacity) {
        uint64_t left = capacity - game->admitted;

        if (is_vast(game) && left <= cost) { break; }

        CHECK(game, pure::admit(game->policy, game->state, game->now_ms, game->limit,
                                left < cost ? (uint32_t)left : cost, &game->state));
        game->admitted += left < cost ? left : cost;
        game->now_ms += random_below(&random, 3);
    }
}

static void run_setting(Algorithm algorithm, uint32_t limit, uint64_t window_ms, uint32_t burst,
                        uint64_t seed, unsigned steps) {
    uint64_t random = seed;
    game_t game = {
        .seed = seed,
        .policy = {window_ms, algorithm, WhenFull::kEvict, 0, burst},
        .limit = limit,
        .now_ms = random_next(&random) >> 24,
    };

    use_up(&game);

    game.now_ms += 1ull << 40;
    game.admitted = 0;
    game.state = 0;
    demand(&game, steps);
}

static void test_large_buckets_lose_no_rate(void **state) {
    static const struct {
        uint32_t limit;
        uint64_t window_ms;
        uint32_t burst;
    } settings[] = {
        {999, SECOND_MS, 4000000},
        {4000000, 60 * MINUTE_MS, 4000000},
        {40000, MINUTE_MS, 1000000},
        {7000, MINUTE_MS, 1000000},
        {4000000, DAY_MS, 0},
        {1000000, DAY_MS, 0},
        {4194301, kWindowMaxMs, 0},
        {LIMIT_MAX, kWindowMaxMs, 0},
        {LIMIT_MAX, kWindowMaxMs, LIMIT_MAX},
        {LIMIT_MAX - 1, kWindowMinMs, LIMIT_MAX},
        {3000000, 999, LIMIT_MAX},
        {7, 1001, 4000000},
        {1000, kWindowMaxMs, 0},
    };

    (void)state;

    for (size_t i = 0; i < LENGTH(settings); i++) {
        for (Algorithm algorithm : {Algorithm::kTokenBucket, Algorithm::kLeakyBucket}) {
            run_setting(algorithm, settings[i].limit, settings[i].window_ms, settings[i].burst, i,
                        10000);
        }
    }
}

static void test_no_bucket_loses_rate(void **state) {
    const char *seed = getenv("SEED");
    uint64_t from = seed == NULL ? 1 : strtoull(seed, NULL, 10);
    uint64_t to = seed == NULL ? SETTINGS : from;

    (void)state;

    for (uint64_t i = from; i <= to; i++) {
        uint64_t random = i;
        uint64_t window_ms = random_window_ms(&random);
        uint32_t burst
            = random_below(&random, 3) == 0 ? 0 : (uint32_t)random_scale(&random, 1, LIMIT_MAX);
        uint32_t limit = (uint32_t)random_scale(&random, 1, LIMIT_MAX);

        run_setting(random_below(&random, 2) ? Algorithm::kTokenBucket : Algorithm::kLeakyBucket,
                    limit, window_ms, burst, i, 500);
    }
}

/* Beyond 4,194,302 the sum is rounded up to whole requests, once. */
static void test_vast_buckets_lose_no_rate(void **state) {
    static const struct {
        uint32_t limit;
        uint64_t window_ms;
        uint32_t burst;
    } settings[] = {
        {kLimitMax, kWindowMaxMs, 0},
        {kLimitMax, kWindowMinMs, 0},
        {kLimitMax, kWindowMinMs, kLimitMax},
        {kLimitMax - 1, kWindowMaxMs - 1, kLimitMax},
        {kLimitMax - 7, 17000000, 0},
        {999999937, 16777217, 0},
        {30000000, MINUTE_MS, 0},
        {30000000, MINUTE_MS, 300000000},
        {1000, SECOND_MS, 100000000},
        {LIMIT_MAX + 1, kWindowMaxMs, 0},
        {LIMIT_MAX + 2, DAY_MS, 0},
        {LIMIT_MAX, DAY_MS, LIMIT_MAX + 1},
    };

    (void)state;

    for (size_t i = 0; i < LENGTH(settings); i++) {
        for (Algorithm algorithm : {Algorithm::kTokenBucket, Algorithm::kLeakyBucket}) {
            run_setting(algorithm, settings[i].limit, settings[i].window_ms, settings[i].burst, i,
                        10000);
        }
    }

    for (uint64_t i = 1; i <= SETTINGS; i++) {
        uint64_t random = i * 77;
        uint64_t window_ms = random_window_ms(&random);
        uint32_t burst
            = random_below(&random, 2) == 0 ? 0 : (uint32_t)random_scale(&random, 1, kLimitMax);
        uint32_t limit = (uint32_t)random_scale(&random, burst == 0 ? LIMIT_MAX : 1, kLimitMax);

        run_setting(random_below(&random, 2) ? Algorithm::kTokenBucket : Algorithm::kLeakyBucket,
                    limit, window_ms, burst, i, 300);
    }
}

/* ---- a limit that changes ---- */

static int admit_one(const Policy *policy, State *state, uint64_t now_ms, uint32_t limit) {
    return pure::admit(*policy, *state, now_ms, limit, 1, state);
}

static uint32_t remaining_in(const Policy *policy, State state, uint64_t now_ms, uint32_t limit) {
    Verdict v;

    v = pure::describe(*policy, state, now_ms, limit, 0);

    return v.remaining;
}

/* A bucket is no more than empty under a lower limit, and refilled at once. */
static void test_a_lowered_limit_starves_nobody(void **state) {
    static const uint32_t limits[] = {1000, 100000, LIMIT_MAX};

    (void)state;

    for (size_t i = 0; i < LENGTH(limits); i++) {
        for (uint64_t window_ms = SECOND_MS; window_ms <= DAY_MS;
             window_ms = window_ms < MINUTE_MS ? MINUTE_MS : window_ms * 24) {
            Policy policy = {window_ms, Algorithm::kTokenBucket};
            State bucket = 0;
            uint64_t now_ms = 1234567890123;

            assert_true(pure::admit(policy, 0, now_ms, limits[i], limits[i], &bucket));
            assert_false(admit_one(&policy, &bucket, now_ms, 10));

            for (unsigned step = 1; step <= 1000; step++) {
                now_ms += window_ms;

                for (unsigned j = 0; j < 5; j++) {
                    assert_true(admit_one(&policy, &bucket, now_ms, 10));
                }

                /* the first window has refilled no more than all of it */
                if (step == 1) {
                    for (unsigned j = 5; j < 10; j++) {
                        assert_true(admit_one(&policy, &bucket, now_ms, 10));
                    }
                    assert_false(admit_one(&policy, &bucket, now_ms, 10));
                }
            }
        }
    }
}

/* At the lower limit a bucket gets its rate, and no more, to a millisecond. */
static void test_a_lowered_limit_is_kept(void **state) {
    Policy policy = {SECOND_MS, Algorithm::kTokenBucket};

    (void)state;

    for (uint32_t limit = 3; limit < 20000; limit = limit * 7 / 3) {
        State bucket = 0;
        uint64_t start_ms = 1000000;
        uint64_t admitted = 0;

        assert_true(pure::admit(policy, 0, start_ms, 1000000, 1000000, &bucket));

        for (uint64_t ms = 0; ms < 20000; ms++) {
            while (admit_one(&policy, &bucket, start_ms + ms, limit)) {
                admitted++;
            }

            assert_in_range(admitted, ms == 0 ? 0 : (ms - 1) * limit / SECOND_MS,
                            ms * limit / SECOND_MS);
        }
    }
}

/* Above 4,194,302 requests times are in steps of up to 256 ms.  That costs a lowered limit a step
 * and the round-up to a whole request, once, and not with each request. */
static void test_a_lowered_limit_keeps_its_rate(void **state) {
    static const struct {
        uint64_t window_ms;
        uint32_t burst;
        uint32_t higher;
        uint32_t limit;
    } settings[] = {
        {kWindowMaxMs, 0, 100000000, 10000000},
        {kWindowMaxMs, 0, 100000000, 1000000},
        {kWindowMaxMs, 0, kLimitMax, kLimitMax / 2},
        {DAY_MS, 0, kLimitMax, 100000000},
        {DAY_MS, 0, 10000000, 1000000},
        {17000000, 0, kLimitMax, 7},
        {MINUTE_MS, 100000000, 4194302, 1000},
        {MINUTE_MS, kLimitMax, kLimitMax, 9999},
    };
    const uint64_t n = 3000;

    (void)state;

    for (const auto &s : settings) {
        Policy policy = {s.window_ms, Algorithm::kTokenBucket, WhenFull::kEvict, 0, s.burst};
        const auto all = static_cast<uint32_t>(policy.capacity(s.higher));
        const uint64_t start_ms = 1234567890123;
        uint64_t now_ms = start_ms;
        State bucket = 0;

        assert_true(pure::admit(policy, 0, now_ms, s.higher, all, &bucket));

        for (uint64_t i = 0; i < n; i++) {
            const Verdict v = pure::describe(policy, bucket, now_ms, s.limit, 1);

            now_ms += v.retry_after_ms;
            assert_true(admit_one(&policy, &bucket, now_ms, s.limit));
        }

        assert_in_range(now_ms - start_ms, n * s.window_ms / s.limit,
                        (n + 1) * s.window_ms / s.limit + 257);
    }
}

/* A bucket of 4,194,303 requests has its times to the ms, as long as no excess is added.  Torture
 * found a reset 117 ms late, with seed 916071260. */
static void test_an_excess_delays_no_reset(void **state) {
    const Policy policy = {MINUTE_MS, Algorithm::kLeakyBucket, WhenFull::kEvict, 0, LIMIT_MAX};
    const uint32_t limit = 7;
    const uint64_t start_ms = 35549007;
    const uint64_t full = policy.capacity(limit) * MINUTE_MS;
    State before = 0;

    (void)state;

    assert_true(pure::admit(policy, 0, start_ms, 795, LIMIT_MAX + 1, &before));

    for (uint64_t later_ms = 10000; later_ms < 6000000; later_ms = later_ms * 9 / 8 + 1) {
        const uint64_t now_ms = start_ms + later_ms;
        const uint64_t drained = later_ms * limit;
        State after = before;

        /* less than a ms of the excess counts as used */
        assert_true(admit_one(&policy, &after, now_ms, limit));

        const Verdict v = pure::describe(policy, after, now_ms, limit, 0);
        const uint64_t room = (v.remaining + 1) * MINUTE_MS;
        const uint64_t most = full - drained + MINUTE_MS + room - full;

        assert_in_range(v.reset_ms, most / limit, most / limit + 2);
    }
}

/* What a lower limit admits between makes a higher one's bucket no fuller. */
static void test_a_lower_limit_between_loses_no_count(void **state) {
    Policy policy = {SECOND_MS, Algorithm::kTokenBucket};
    State bucket = 0;
    uint64_t random = 1;
    uint64_t start_ms = 1000000;
    uint64_t now_ms = start_ms;
    uint64_t admitted = 0;

    (void)state;

    for (unsigned i = 0; i < 100000; i++) {
        uint32_t limit = random_below(&random, 2) ? 1000 : 10;

        now_ms += random_below(&random, 4);

        while (admit_one(&policy, &bucket, now_ms, limit)) {
            admitted++;
        }

        assert_true(admitted <= 1010 + (now_ms - start_ms));
        assert_true(limit == 10 || remaining_in(&policy, bucket, now_ms, limit) == 0);
    }

    assert_true(admitted >= (now_ms - start_ms) / 2);
}

/* A refund beside an excess undoes the admission, under both limits. */
static void test_refund_beside_an_excess(void **state) {
    (void)state;

    for (uint64_t window_ms : {SECOND_MS, MINUTE_MS, DAY_MS}) {
        Policy policy = {window_ms, Algorithm::kTokenBucket};

        for (uint32_t cost = 1; cost <= 4; cost++) {
            for (uint64_t later : {0, 1, 3}) {
                uint64_t now_ms = 1234567890123;
                State before = 0, after = 0, other = 0;

                assert_true(pure::admit(policy, 0, now_ms, 100, 100, &before));
                now_ms += window_ms / 2;
                assert_true(pure::admit(policy, before, now_ms, 10, cost, &after));
                now_ms += window_ms * later / 100;

                const State given = pure::refund(policy, after, now_ms, 10, after, cost);
                assert_int_equal(remaining_in(&policy, given, now_ms, 10), 5);
                assert_int_equal(remaining_in(&policy, given, now_ms, 100), 50 + later);

                /* once a higher limit has used the time, it gets no more back than the cost */
                assert_true(pure::admit(policy, after, now_ms, 100, 1, &other));
                const uint64_t left = remaining_in(&policy, other, now_ms, 100);
                other = pure::refund(policy, other, now_ms, 10, after, cost);
                assert_in_range(remaining_in(&policy, other, now_ms, 100), left, left + cost);
            }
        }
    }
}

/* What has run off since is not given back beside what came later. */
static void test_refund_of_what_has_run_off(void **state) {
    static const Algorithm algorithms[] = {Algorithm::kTokenBucket, Algorithm::kLeakyBucket};

    (void)state;

    for (size_t i = 0; i < LENGTH(algorithms); i++) {
        Policy policy = evicting(SECOND_MS);
        Zone *zone;
        Claim first, later;
        uint64_t now_ms = PRESENT * SECOND_MS;

        policy.algorithm = algorithms[i];
        policy.burst = 10;
        zone = make_zone_for(&policy, PAIR_BYTES);

        /* half of the first one has run off when others come */

        first = acquire(zone, &policy, 1, 10, 4, now_ms);
        later = acquire(zone, &policy, 1, 10, 3, now_ms + 200);
        assert_int_equal(first.outcome, Outcome::kAdmitted);
        assert_int_equal(later.outcome, Outcome::kAdmitted);

        limit_sliding::release(&first, 1, now_ms + 200);
        assert_int_equal(remaining_of(zone, &policy, 1, 10, now_ms + 200),
                         policy.burst + (policy.algorithm == Algorithm::kLeakyBucket) - 3);

        /* all of it has, long since */

        first = acquire(zone, &policy, 2, 10, 4, now_ms);
        later = acquire(zone, &policy, 2, 10, 3, now_ms + SECOND_MS);
        limit_sliding::release(&first, 1, now_ms + SECOND_MS);
        assert_int_equal(remaining_of(zone, &policy, 2, 10, now_ms + SECOND_MS),
                         policy.burst + (policy.algorithm == Algorithm::kLeakyBucket) - 3);
        free(zone);
    }
}

/* ---- a limit that was lowered, and refunds ---- */

#define REQUESTS 180

struct admission_t {
    uint64_t now_ms;
    uint32_t cost;
    State recorded;
    int since; /* the last refund before it */
    int given_back;
};

/* What the lower limit admits, less what was given back, fits an exact bucket. */
static void check_bound(const Policy *policy, uint32_t limit, const admission_t *admissions,
                        size_t n, uint64_t seed) {
    exact_bucket_t bucket = {0, 0};

    for (size_t i = 0; i < n; i++) {
        const admission_t *a = &admissions[i];

        if (a->given_back) { continue; }

        run_off(&bucket, a->now_ms, limit);
        bucket.used += (wide_t)a->cost * policy->window_ms;

        if (bucket.used > (wide_t)limit * policy->window_ms) {
            fail_msg("seed %llu, window %llu ms, limit %u: request %zu is too much",
                     (unsigned long long)seed, (unsigned long long)policy->window_ms, limit, i);
        }
    }
}

static void run_lowered(const Policy &policy, uint32_t limit, uint32_t higher, uint64_t gap_ms,
                        uint64_t seed) {
    uint64_t random = seed * 104729;
    uint64_t now_ms = 1000000 + random_below(&random, 100000);
    admission_t admissions[REQUESTS];
    size_t n = 0;
    State bucket = 0;

    for (int i = 0; i < 20; i++) {
        uint64_t rare = random_below(&random, 3);
        uint32_t cost = 1 + (uint32_t)random_below(&random, rare ? 3 : higher);

        now_ms += random_below(&random, random_below(&random, 3) ? gap_ms : policy.window_ms / 2);
        pure::admit(policy, bucket, now_ms, higher, cost, &bucket);
    }

    for (int i = 1; i <= REQUESTS; i++) {
        uint64_t rare = random_below(&random, 3);
        uint32_t cost = 1 + (uint32_t)random_below(&random, rare ? 3 : limit);

        now_ms += random_below(&random, random_below(&random, 3) ? gap_ms : policy.window_ms / 2);

        if (n > 0 && random_below(&random, 4) == 0) {
            size_t k = n - 1 - random_below(&random, n < 3 ? n : 3);
            admission_t *a = &admissions[k];
            int is_known = !a->given_back;

            /* docs/algorithms.md: unless an earlier one was given back in between */
            for (size_t j = 0; j < k; j++) {
                is_known = is_known && admissions[j].given_back <= a->since;
            }

            if (is_known) {
                a->given_back = i;
                bucket = pure::refund(policy, bucket, now_ms, limit, a->recorded, a->cost);
            }
        } else if (pure::admit(policy, bucket, now_ms, limit, cost, &bucket)) {
            admissions[n++] = {now_ms, cost, bucket, i, 0};
        }
    }

    check_bound(&policy, limit, admissions, n, seed);
}

/* What was set aside did not have to run off before a request that is given
 * back, which may have run off meanwhile. */
static void test_refunds_beside_an_excess_keep_the_limit(void **state) {
    (void)state;

    for (uint64_t seed = 1; seed <= 20000; seed++) {
        uint64_t random = seed;
        Policy policy = {100 + random_below(&random, 5000), Algorithm::kTokenBucket};
        uint32_t limit = 1 + (uint32_t)random_below(&random, 20);

        run_lowered(policy, limit, limit + 1 + (uint32_t)random_below(&random, 2000), 20, seed);

        /* the same with times in steps */
        policy.window_ms = 1 + kWindowMaxMs / (1 + random_below(&random, 100));
        limit = (uint32_t)random_scale(&random, 20, kLimitMax / 2);
        uint32_t higher = limit + (uint32_t)random_scale(&random, LIMIT_MAX, kLimitMax / 2);

        run_lowered(policy, limit, higher, 2 + policy.window_ms / limit, seed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refund_of_what_has_run_off),
        cmocka_unit_test(test_refund_beside_an_excess),
        cmocka_unit_test(test_refunds_beside_an_excess_keep_the_limit),
        cmocka_unit_test(test_large_buckets_lose_no_rate),
        cmocka_unit_test(test_no_bucket_loses_rate),
        cmocka_unit_test(test_vast_buckets_lose_no_rate),
        cmocka_unit_test(test_a_lowered_limit_starves_nobody),
        cmocka_unit_test(test_a_lowered_limit_is_kept),
        cmocka_unit_test(test_a_lowered_limit_keeps_its_rate),
        cmocka_unit_test(test_an_excess_delays_no_reset),
        cmocka_unit_test(test_a_lower_limit_between_loses_no_count),
    };

    return cmocka_run_group_tests_name("bucket", tests, NULL, NULL);
}
