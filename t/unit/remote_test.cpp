/* Copyright (C) the limit_sliding authors */

/* The circuit breaker, and the cache of keys known to be exhausted. */

#include <pthread.h>

#include "redis/protocol/remote_state.hpp"
#include "redis/protocol/scripts.hpp"
#include "redis/shared/breaker.hpp"
#include "redis/shared/refusals.hpp"
#include "support.hpp"

using namespace limit_sliding;

#define FAILURES kBreakerFailures
#define INTERVAL_MS kBreakerIntervalMs

/* ---- the breaker ---- */

static int fail_times(Breaker *breaker, unsigned times, uint64_t now_ms) {
    int opened = 0;

    for (unsigned i = 0; i < times; i++) {
        opened += breaker->failed(now_ms, 0);
    }

    return opened;
}

static void opens_after_failures_in_a_row(void **state) {
    Breaker breaker = {};

    (void)state;
    assert_int_equal(breaker.check(0), BreakerState::kClosed);

    assert_int_equal(fail_times(&breaker, FAILURES - 1, 1000), 0);
    assert_int_equal(breaker.check(1000), BreakerState::kClosed);

    assert_int_equal(breaker.succeeded(), 0);
    assert_int_equal(fail_times(&breaker, FAILURES - 1, 1000), 0);
    assert_int_equal(fail_times(&breaker, 1, 1000), 1);
    assert_int_equal(fail_times(&breaker, FAILURES, 1000), 0);

    assert_int_equal(breaker.check(1000), BreakerState::kOpen);
    assert_int_equal(breaker.is_open(), 1);
    /* another worker's clock is behind */
    assert_int_equal(breaker.check(990), BreakerState::kOpen);

    assert_int_equal(breaker.succeeded(), 1);
    assert_int_equal(breaker.check(1000), BreakerState::kClosed);
    assert_int_equal(breaker.is_open(), 0);
}

static void lets_one_probe_pass_an_interval(void **state) {
    Breaker breaker = {};

    (void)state;
    fail_times(&breaker, FAILURES, 5000);

    assert_int_equal(breaker.probe_ms(), 5000 + INTERVAL_MS);
    assert_int_equal(breaker.check(5000 + INTERVAL_MS - 1), BreakerState::kOpen);
    assert_int_equal(breaker.check(5000 + INTERVAL_MS), BreakerState::kProbe);
    assert_int_equal(breaker.probe_ms(), 5000 + 2 * INTERVAL_MS);
    assert_int_equal(breaker.check(5000 + INTERVAL_MS), BreakerState::kOpen);

    /* whoever sent that one has died */
    assert_int_equal(breaker.check(5000 + 2 * INTERVAL_MS), BreakerState::kProbe);
}

static void spreads_probes(void **state) {
    (void)state;

    for (uint32_t random = 0; random < 10000; random += 7) {
        Breaker breaker = {};

        fail_times(&breaker, FAILURES - 1, 0);
        breaker.failed(0, random);

        assert_int_equal(breaker.check(INTERVAL_MS * 3 / 4 - 1), BreakerState::kOpen);
        assert_int_equal(breaker.check(INTERVAL_MS), BreakerState::kProbe);
    }
}

/* ---- refusals ---- */

/* Four lines of a key, of three refusals each: hashes choose by their last digit. */
#define LINES 4
#define GROUP (LINES * 128)

#define CACHE_BYTES (64 + GROUP * 4)

static Refusals *make_refusals(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);

    assert_non_null(memory);
    memset(memory, 0, bytes);

    return Refusals::init(memory, bytes);
}

static uint64_t limit_for(uint64_t hash) { return kRemoteMax - (hash >> 40); }

static void refuse(Refusals *refusals, uint64_t hash, uint64_t now_ms, uint64_t until_ms) {
    Refusal refusal = {until_ms, now_ms + kRefusalMs, limit_for(hash), hash >> 14, now_ms + 1};

    refusals->add(hash, now_ms, refusal);
}

static int is_refused(const Refusals *refusals, uint64_t hash, uint64_t now_ms) {
    Refusal refusal;

    if (!refusals->find(hash, now_ms, &refusal)) { return 0; }

    assert_int_equal(refusal.limit, limit_for(hash));
    assert_int_equal(refusal.remaining, hash >> 14);

    return 1;
}

static void refuses_until_its_time(void **state) {
    Refusals *refusals = make_refusals(CACHE_BYTES);
    uint64_t hash = 0x123456789abcdef0;

    (void)state;
    assert_false(is_refused(refusals, hash, 100));
    assert_false(is_refused(refusals, 0, 100));

    refuse(refusals, hash, 100, 300);
    assert_true(is_refused(refusals, hash, 100));
    assert_true(is_refused(refusals, hash, 299));
    assert_false(is_refused(refusals, hash, 300));
    assert_false(is_refused(refusals, hash ^ 1, 100));

    /* again, until later */
    refuse(refusals, hash, 200, 400);
    assert_true(is_refused(refusals, hash, 399));
    assert_false(is_refused(refusals, hash, 400));

    free(refusals);
}

static void is_not_believed_for_long(void **state) {
    Refusals *refusals = make_refusals(CACHE_BYTES);

    (void)state;
    refuse(refusals, 42, 100, YEAR_MS);
    assert_true(is_refused(refusals, 42, 99 + kRefusalMs));
    assert_false(is_refused(refusals, 42, 100 + kRefusalMs));

    /* nor for that, where others may have recorded what they have rejected */
    Refusal refusal = {YEAR_MS, 100 + kRecordedRefusalMs, limit_for(43), 43 >> 14, 101};

    refusals->add(43, 100, refusal);
    assert_true(is_refused(refusals, 43, 99 + kRecordedRefusalMs));
    assert_false(is_refused(refusals, 43, 100 + kRecordedRefusalMs));

    free(refusals);
}

/* What stands beside a refusal is told as it was, and no refusal. */
static void tells_of_who_admits(void **state) {
    Refusals *refusals = make_refusals(CACHE_BYTES);
    Refusal admits = {0, YEAR_MS + kRefusalMs, kRemoteMax, kRemoteMax, 0};
    Refusal found;

    (void)state;

    for (unsigned bit = 0; bit < 42; bit++) {
        admits.reset_ms = ((uint64_t)1 << 42) - 1 - ((uint64_t)1 << bit);

        refusals->add(42, YEAR_MS, admits);
        assert_true(refusals->find(42, YEAR_MS + kRefusalMs - 1, &found));
        assert_true(found.admits());
        assert_true(found.reset_ms == admits.reset_ms);
        assert_int_equal(found.limit, kRemoteMax);
        assert_int_equal(found.remaining, kRemoteMax);
    }

    assert_false(refusals->find(42, YEAR_MS + kRefusalMs, &found));

    /* it rejects since */
    refuse(refusals, 42, YEAR_MS, YEAR_MS + 500);
    assert_true(refusals->find(42, YEAR_MS + 499, &found));
    assert_false(found.admits());
    assert_true(found.reset_ms == YEAR_MS + 1);
    assert_true(found.until_ms == YEAR_MS + 500);

    /* a key owes a thousand windows */
    refuse(refusals, 42, YEAR_MS, YEAR_MS + 1001 * kWindowMaxMs);
    assert_true(refusals->find(42, YEAR_MS + kRefusalMs - 1, &found));
    assert_true(found.until_ms == YEAR_MS + 1001 * kWindowMaxMs);

    free(refusals);
}

/* Of three candidates, what is over goes first, then what ends first. */
static void forgets_the_least(void **state) {
    Refusals *refusals = make_refusals(64 + GROUP);

    (void)state;
    refuse(refusals, 1 * LINES, 100, 900);
    refuse(refusals, 2 * LINES, 100, 800);
    refuse(refusals, 3 * LINES, 100, 850);
    refuse(refusals, 4 * LINES, 100, 870);
    assert_true(is_refused(refusals, 1 * LINES, 100));
    assert_false(is_refused(refusals, 2 * LINES, 100));
    assert_true(is_refused(refusals, 3 * LINES, 100));
    assert_true(is_refused(refusals, 4 * LINES, 100));

    refuse(refusals, 5 * LINES, 860, 861);
    assert_true(is_refused(refusals, 1 * LINES, 860));
    assert_false(is_refused(refusals, 3 * LINES, 860));
    assert_true(is_refused(refusals, 4 * LINES, 860));
    assert_true(is_refused(refusals, 5 * LINES, 860));

    free(refusals);
}

/* A key is refused by several limits and costs. */
static void forgets_a_key(void **state) {
    Refusals *refusals = make_refusals(CACHE_BYTES);
    Refusal refusal = {YEAR_MS, 100 + kRefusalMs, 7, 0, 0};
    Policy policy = evicting(MINUTE_MS);
    Claim claim = {.policy = &policy};

    (void)state;

    for (uint64_t key = 0; key < 1000; key++) {
        uint64_t hashes[3];

        claim.hash = key * 0x9e3779b97f4a7c15;

        for (uint32_t i = 0; i < LENGTH(hashes); i++) {
            claim.cost = i + 1;
            claim.limit = 10 * i + 10;
            hashes[i] = limit_sliding::refusal_hash(claim);
            refusals->add(hashes[i], 100, refusal);
            assert_true(refusals->find(hashes[i], 100, &refusal));
        }

        refusals->forget(claim);

        for (uint32_t i = 0; i < LENGTH(hashes); i++) {
            assert_false(refusals->find(hashes[i], 100, &refusal));
        }
    }

    free(refusals);
}

static void needs_room_for_one(void **state) {
    static char memory[64 + GROUP];
    Refusals *refusals;

    (void)state;
    assert_null(Refusals::init(memory, 64 + GROUP - 1));

    refusals = make_refusals(64 + GROUP);
    assert_non_null(refusals);
    free(refusals);
}

#define THREADS 4
#define ROUNDS 300000

/* Every refusal says in its numbers whose it is: is_refused() checks. */
static void *hammer(void *data) {
    Refusals *refusals = static_cast<Refusals *>(data);
    uint64_t random = (uint64_t)(uintptr_t)&random;

    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t hash = random_below(&random, 16) * 0x9e3779b97f4a7c15;

        if (i % 2) {
            refuse(refusals, hash, 100, 101 + random_below(&random, 1000));
        } else {
            is_refused(refusals, hash, 100);
        }
    }

    return NULL;
}

static void takes_none_for_anothers(void **state) {
    Refusals *refusals = make_refusals(64 + GROUP);
    pthread_t thread[THREADS];

    (void)state;

    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, hammer, refusals), 0);
    }

    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }

    free(refusals);
}

/* ---- how long a refusal holds ---- */

struct patience_t {
    Policy policy;
    uint64_t limit;
    uint64_t now_ms;
    int64_t values[5];
    uint64_t cost;
    uint64_t refused_ms;
};

#define SOME_MS 1700000000000 /* a multiple of 100 ms, but not of a minute */

static Policy policy_of(uint64_t window_ms, Algorithm algorithm, uint32_t precision = 0,
                        uint32_t burst = 0) {
    return {window_ms, algorithm, WhenFull::kEvict, precision, burst};
}

static void holds_for_a_while(void **state) {
    const Algorithm bucket = Algorithm::kTokenBucket, leaky = Algorithm::kLeakyBucket;
    const Policy counter = policy_of(100, Algorithm::kCounter, 1);
    const Policy minute = policy_of(60000, Algorithm::kFixed);
    const int64_t part = SOME_MS / 100;
    const int64_t full = 1000000, half = 500000;
    const patience_t cases[] = {
        /* a counter that would admit in the next ms, until shortly before its part ends */
        {counter, 1000000, SOME_MS + 50, {1, part, 0, full, half}, 1, 25},
        {counter, 1000000, SOME_MS + 65, {1, part, 0, full, 650000}, 1, 20},
        {counter, 1000000, SOME_MS + 84, {1, part, 0, full, 840000}, 1, 1},
        {counter, 1000000, SOME_MS + 95, {1, part, 0, full, 950000}, 1, 1},
        /* one that has room, and one that has to wait for longer */
        {counter, 1000000, SOME_MS + 50, {1, part, 0, full, half - 1}, 1, 0},
        {counter, 10, SOME_MS + 10, {1, part, 0, 10, 9}, 1, 90},
        /* a cost above the limit */
        {counter, 10, SOME_MS + 10, {1, part, 0, 10, 10}, 11, kNever},
        /* a window admits when it begins */
        {minute, 10, SOME_MS + 39995, {10}, 1, 5},
        /* a bucket of many requests, and some that would be full before */
        {policy_of(60000, bucket), 1000000, SOME_MS, {full, 0}, 1, 25},
        {policy_of(1000, bucket, 0, 20), 1000, SOME_MS, {20, 0}, 1, 10},
        {policy_of(1000, bucket, 0, 20), 1000, SOME_MS, {20, 0}, 15, 15},
        {policy_of(1000, bucket, 0, 20), 1000, SOME_MS, {3, 0}, 20, 3},
        {policy_of(1000, leaky, 0, 10), 1000, SOME_MS, {11, 0}, 1, 5},
        {policy_of(1000, leaky), 1000, SOME_MS, {1, 0}, 1, 1},
        /* a log */
        {policy_of(60000, Algorithm::kLog), 10, SOME_MS, {10, SOME_MS - 59999, 0}, 1, 25},
        {policy_of(1000, Algorithm::kLog), 10, SOME_MS, {10, SOME_MS - 999, 0}, 1, 10},
    };

    (void)state;

    for (const patience_t &c : cases) {
        RemoteState remote = {c.now_ms, c.limit, c.values};
        Verdict verdict = remote.describe(c.policy, c.cost, 0, false, false);

        assert_int_equal(remote.refused_ms(c.policy, verdict), c.refused_ms);
    }
}

/* ---- what is asked ---- */

static void tells_claims_apart(void **state) {
    Claim claims[2] = {{0}, {0}};
    uint64_t hashes[8];
    size_t n = 0;

    (void)state;
    claims[0].hash = 1;
    claims[1].hash = 2;
    claims[0].limit = claims[1].limit = 10;
    claims[0].cost = claims[1].cost = 1;

    hashes[n++] = limit_sliding::ask_hash(claims, 1);
    hashes[n++] = limit_sliding::ask_hash(claims, 2);
    hashes[n++] = limit_sliding::ask_hash(claims + 1, 1);
    claims[0].cost = 2;
    hashes[n++] = limit_sliding::ask_hash(claims, 1);
    claims[0].limit = 11;
    hashes[n++] = limit_sliding::ask_hash(claims, 1);
    claims[0].purpose = Purpose::kLook;
    hashes[n++] = limit_sliding::ask_hash(claims, 1);
    claims[0].hash = 2, claims[1].hash = 1;
    hashes[n++] = limit_sliding::ask_hash(claims, 2);

    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++) {
            assert_true(hashes[i] != hashes[j]);
        }
    }

    claims[0].directive = (Limit *)claims;
    assert_true(limit_sliding::ask_hash(claims, 2) == hashes[n - 1]);
}

/* ---- keys that owe ---- */

struct debt_t {
    int64_t units;
    int64_t from;
    int is_valid;
};

static void tells_debts(void **state) {
    static const debt_t cases[] = {
        {1, 28333336, 1}, {1ll << 53, 28333336, 1},  {(1ll << 53) + 1, 28333336, 0},
        {0, 28333336, 0}, {-1, 28333336, 0},         {1, -1, 0},
        {1, 0, 1},        {1, INT64_MAX / 60000, 0}, {INT64_MIN, INT64_MIN, 0},
    };
    Policy policy = {60000, Algorithm::kFixed, WhenFull::kEvict, 0, 0};

    (void)state;

    for (const debt_t &c : cases) {
        assert_int_equal(is_remote_debt(policy, c.units, c.from), c.is_valid);
    }
}

#define BEGINS_MS 1699999980000ull /* of a minute */
#define PART (BEGINS_MS / 60000 * kDebtParts)

/* A debt counts as used, and falls when windows begin. */
static void describes_keys_that_owe(void **state) {
    const int64_t used[] = {8};
    Policy policy = {60000, Algorithm::kFixed, WhenFull::kEvict, 0, 0};
    RemoteState remote = {BEGINS_MS + 1000, 10, used, {25, PART, 10}};
    Verdict v = remote.describe(policy, 1, 0, false, false);

    (void)state;
    assert_int_equal(v.limit, 10);
    assert_int_equal(v.remaining, 0);
    assert_int_equal(v.excess, 24000);
    assert_int_equal(v.retry_after_ms, 2 * 60000 - 1000);
    assert_int_equal(v.reset_ms, 2 * 60000 - 1000);
    assert_int_equal(remote.used_after(policy, 0), 33);

    /* the present window does not pay yet */
    remote.debt.from = PART + kDebtParts;
    assert_int_equal(remote.describe(policy, 5, 0, false, false).retry_after_ms, 3 * 60000 - 1000);
    assert_int_equal(remote.describe(policy, 6, 0, false, false).retry_after_ms, 4 * 60000 - 1000);

    /* rejected units are not recorded */
    v = remote.describe(policy, 1, 0, false, false, 100);
    assert_int_equal(v.excess, 24000);

    /* an admission under a higher limit records the debt */
    remote.limit = 40;
    v = remote.describe(policy, 1, 0, false, true);
    assert_int_equal(v.remaining, 7);
    assert_int_equal(v.reset_ms, 60000 - 1000);
    v = remote.describe(policy, 1, 1, true, false);
    assert_int_equal(v.remaining, 5);
    assert_int_equal(remote.used_after(policy, 2), 35);

    /* and so a refund of a bucket has that before it */
    const int64_t level[] = {8, 30};
    policy.algorithm = Algorithm::kTokenBucket;
    remote.values = level;
    const Taken taken = remote.taken(policy, 2);
    assert_int_equal(taken.values[0], 8 + 25 + 2);
    assert_int_equal(taken.values[1], 30);
}

/* Where the history runs off within windows, a wait ends in between. */
static void waits_for_history_and_debt(void **state) {
    Policy policy = {60000, Algorithm::kTokenBucket, WhenFull::kEvict, 0, 0};
    const int64_t level[] = {50, 0};
    RemoteState remote = {BEGINS_MS + 1000, 60, level, {15, PART, 10}};

    (void)state;

    /* 10 of the 65 that are used have run off */
    assert_int_equal(remote.describe(policy, 5, 0, false, true).retry_after_ms, 10000);
    assert_int_equal(remote.describe(policy, 45, 0, false, true).retry_after_ms, 50000);

    /* all of the history has, and the debt is too much until a window begins */
    assert_int_equal(remote.describe(policy, 46, 0, false, true).retry_after_ms, 59000);
    assert_int_equal(remote.describe(policy, 55, 0, false, true).retry_after_ms, 59000);
    assert_int_equal(remote.describe(policy, 56, 0, false, true).retry_after_ms, 119000);
    assert_int_equal(remote.describe(policy, 60, 0, false, true).retry_after_ms, 119000);
    assert_true(remote.describe(policy, 61, 0, false, true).retry_after_ms == kNever);

    /* a window begins before the history has run off */
    remote.now_ms = BEGINS_MS + 55000;
    assert_int_equal(remote.describe(policy, 5, 0, false, true).retry_after_ms, 5000);
    assert_int_equal(remote.describe(policy, 15, 0, false, true).retry_after_ms, 10000);

    /* no wait is longer than there are times */
    remote.debt = {kSettledMax, PART, 1};
    assert_true(remote.describe(policy, 5, 0, false, true).retry_after_ms < 1ull << 47);
}

/* ---- buckets ---- */

struct level_t {
    Algorithm algorithm;
    uint32_t burst;
    int64_t values[2];
    int is_valid;
};

/* No reply makes a request wait for longer than the queue of its limit is. */
static void bounds_levels_of_buckets(void **state) {
    static const level_t cases[] = {
        {Algorithm::kLeakyBucket, 4, {0, 0}, 1},
        {Algorithm::kLeakyBucket, 4, {4, 59999}, 1},
        /* what is set aside is in whole ms, in each of which 10 run off */
        {Algorithm::kLeakyBucket, 4, {5, 10}, 1},
        {Algorithm::kLeakyBucket, 4, {5, 11}, 0},
        {Algorithm::kLeakyBucket, 4, {6, 0}, 0},
        {Algorithm::kLeakyBucket, 4, {INT64_MAX, 0}, 0},
        {Algorithm::kLeakyBucket, 4, {1, 60000}, 0},
        {Algorithm::kTokenBucket, 0, {10, 10}, 1},
        {Algorithm::kTokenBucket, 0, {11, 0}, 0},
        {Algorithm::kTokenBucket, 20, {20, 0}, 1},
        {Algorithm::kTokenBucket, 20, {21, 0}, 0},
    };

    (void)state;

    for (const level_t &c : cases) {
        Policy policy = {60000, c.algorithm, WhenFull::kEvict, 0, c.burst};
        assert_int_equal(are_remote_values(policy, 10, SOME_MS, c.values), c.is_valid);
    }
}

struct grant_t {
    Algorithm algorithm;
    int64_t values[4];
    uint64_t debt;
    uint64_t units;
    bool is_valid;
};

/* No grant exceeds what the history and the debt leave of the capacity: a queue of 5, else 10. */
static void bounds_grants(void **state) {
    static const grant_t cases[] = {
        {Algorithm::kLeakyBucket, {0, 0}, 0, 5, true},
        {Algorithm::kLeakyBucket, {0, 0}, 0, 6, false},
        {Algorithm::kLeakyBucket, {2, 0}, 1, 2, true},
        {Algorithm::kLeakyBucket, {2, 0}, 1, 3, false},
        /* a begun request has no room for another one */
        {Algorithm::kLeakyBucket, {2, 1}, 1, 1, true},
        {Algorithm::kLeakyBucket, {2, 1}, 1, 2, false},
        {Algorithm::kLeakyBucket, {0, 1}, kSettledMax, 0, false},
        /* an over-full bucket admits what costs nothing */
        {Algorithm::kLeakyBucket, {5, 10}, 0, 0, true},
        {Algorithm::kLeakyBucket, {5, 10}, 1, 0, false},
        {Algorithm::kFixed, {4}, 3, 3, true},
        {Algorithm::kFixed, {4}, 3, 4, false},
        {Algorithm::kLog, {4, -1, -1}, 0, 6, true},
        {Algorithm::kLog, {4, -1, -1}, 0, 7, false},
        /* a counter may have granted by fewer parts */
        {Algorithm::kCounter, {10}, 3, 7, true},
        {Algorithm::kCounter, {0}, 3, 8, false},
    };

    (void)state;

    for (const grant_t &c : cases) {
        Policy policy = {60000, c.algorithm, WhenFull::kEvict, 0,
                         c.algorithm == Algorithm::kLeakyBucket ? 4u : 0u};
        RemoteState remote = {SOME_MS, 10, c.values, {c.debt, 0, 10}};
        assert_int_equal(remote.has_room(policy, c.units), c.is_valid);
    }
}

/* ---- the limit and the debt of a key ---- */

struct terms_t {
    int64_t elements[4];
    size_t n; /* elements of the reply */
    bool is_valid;
    size_t next; /* elements that are read */
    KeyTerms terms;
};

static void reads_terms(void **state) {
    constexpr int64_t day = 86400000;
    const terms_t cases[] = {
        {{}, 0, true, 0, {}},
        {{0}, 1, true, 0, {}},
        {{-kScriptOff}, 1, true, 1, {{kLimitOff, {}}, Terms::kUnlimited, false, false, 0, 0}},
        {{-kScriptMalformed}, 1, true, 1, {{}, Terms::kLimited, true, false, 0, 0}},
        {{-kScriptForeign}, 1, true, 1, {{}, Terms::kLimited, false, true, 0, 0}},
        {{-kScriptOwn}, 1, true, 1, {{kLimitBlocked, {}}, Terms::kBlocked, false, false, 0, 0}},
        {{-kScriptOwn - 7}, 1, true, 1, {{7, {}}, Terms::kLimited, false, false, 0, 0}},
        {{-kScriptDebt, 5, 9}, 3, true, 3, {{}, Terms::kLimited, false, false, 5, 9}},
        {{-kScriptDebt - kScriptMalformed, 5, 9},
         3,
         true,
         3,
         {{}, Terms::kLimited, true, false, 5, 9}},
        {{-kScriptOwn - kScriptWindow - 7, day},
         2,
         true,
         2,
         {{7, Window::from_code(day)}, Terms::kLimited, false, false, 0, 0}},
        {{-kScriptOwn - kScriptWindow - kScriptDebt - 7, 3, 5, 9},
         4,
         true,
         4,
         {{7, Window::of(Calendar::kMonth)}, Terms::kLimited, false, false, 5, 9}},
        /* no script replies so */
        {{-4}, 1, false, 0, {}},
        {{-kScriptForeign - kScriptDebt, 5, 9}, 3, false, 0, {}},
        {{-kScriptWindow, day}, 2, false, 0, {}},
        {{-kScriptOwn - kScriptWindow, day}, 2, false, 0, {}},
        {{-kScriptOwn - kScriptWindow - 7, day}, 1, false, 0, {}},
        {{-kScriptOwn - kScriptWindow - 7, 99}, 2, false, 0, {}},
        {{-kScriptOwn - kScriptWindow - 7, -1}, 2, false, 0, {}},
        {{-kScriptDebt, 0, 9}, 3, false, 0, {}},
        {{-kScriptDebt, 5, 9}, 1, false, 0, {}},
        /* these are no terms: a string, and a number */
        {{INT64_MIN + 1}, 1, true, 0, {}},
        {{-2 * kScriptOwn}, 1, true, 0, {}},
    };

    (void)state;

    for (const terms_t &c : cases) {
        KeyTerms terms;
        size_t next = 0;
        assert_int_equal(terms.read(c.elements, c.n, &next), c.is_valid);
        if (!c.is_valid) { continue; }

        assert_int_equal(next, c.next);
        assert_true(terms.own == c.terms.own);
        assert_true(terms.terms == c.terms.terms);
        assert_int_equal(terms.is_malformed, c.terms.is_malformed);
        assert_int_equal(terms.is_foreign, c.terms.is_foreign);
        assert_int_equal(terms.owed, c.terms.owed);
        assert_int_equal(terms.owed_from, c.terms.owed_from);
    }
}

/* ---- what a reply may tell of other states ---- */

struct told_t {
    Algorithm algorithm;
    uint32_t precision;
    int64_t values[6];
    int is_valid;
};

/* No reply makes a client wait for longer than its key may have to, nor for as long as a
 * wrapped number.  Windows are a minute long, and SOME_MS is 20 s after one began. */
static void bounds_times_and_counts(void **state) {
    const int64_t part = SOME_MS / 60000;
    const int64_t ahead = 8192 + 1440; /* windows that a clock may have been set back by */
    const int64_t ahead_ms = SOME_MS + ahead * MINUTE_MS;
    const int64_t most = kSettledMax;
    const told_t cases[] = {
        {Algorithm::kLog, 0, {10, SOME_MS - 1, -1}, 1},
        {Algorithm::kLog, 0, {-1, -1, -1}, 0},
        {Algorithm::kLog, 0, {most, -1, -1}, 1},
        {Algorithm::kLog, 0, {most + 1, -1, -1}, 0},
        /* the clock was set back, or the key owes */
        {Algorithm::kLog, 0, {10, ahead_ms, ahead_ms}, 1},
        {Algorithm::kLog, 0, {10, ahead_ms + 1, -1}, 0},
        {Algorithm::kLog, 0, {10, -1, ahead_ms + 1}, 0},
        {Algorithm::kLog, 0, {10, INT64_MAX, INT64_MAX}, 0},
        {Algorithm::kFixed, 0, {most}, 1},
        {Algorithm::kFixed, 0, {most + 1}, 0},
        {Algorithm::kCounter, 1, {1, part, 0, most, most}, 1},
        {Algorithm::kCounter, 1, {1, part, 0, most + 1, 0}, 0},
        {Algorithm::kCounter, 1, {1, part, 0, 0, most + 1}, 0},
        /* the present part, and the last one that a clock set back leaves */
        {Algorithm::kCounter, 1, {1, part - 1, 0, 1, 1}, 0},
        {Algorithm::kCounter, 1, {1, part + ahead, 0, 1, 1}, 1},
        {Algorithm::kCounter, 1, {1, part + 1 + ahead, 0, 1, 1}, 0},
        {Algorithm::kCounter, 2, {2, 2 * part, 0, 1, 1, 1}, 1},
        {Algorithm::kCounter, 2, {2, 2 * part - 1, 0, 1, 1, 1}, 0},
        {Algorithm::kCounter, 2, {2, 2 * (part + ahead), 0, 1, 1, 1}, 1},
        {Algorithm::kCounter, 2, {2, 2 * (part + 1 + ahead), 0, 1, 1, 1}, 0},
        /* an end is to come */
        {Algorithm::kCounter, 1, {1, part, SOME_MS + 1, 1, 1}, 1},
        {Algorithm::kCounter, 1, {1, part, SOME_MS, 1, 1}, 0},
    };

    (void)state;

    for (const told_t &c : cases) {
        Policy policy = {60000, c.algorithm, WhenFull::kEvict, c.precision, 0};
        assert_int_equal(are_remote_values(policy, 10, SOME_MS, c.values), c.is_valid);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_debts),
        cmocka_unit_test(describes_keys_that_owe),
        cmocka_unit_test(waits_for_history_and_debt),
        cmocka_unit_test(bounds_levels_of_buckets),
        cmocka_unit_test(bounds_grants),
        cmocka_unit_test(bounds_times_and_counts),
        cmocka_unit_test(reads_terms),
        cmocka_unit_test(opens_after_failures_in_a_row),
        cmocka_unit_test(lets_one_probe_pass_an_interval),
        cmocka_unit_test(spreads_probes),
        cmocka_unit_test(refuses_until_its_time),
        cmocka_unit_test(is_not_believed_for_long),
        cmocka_unit_test(tells_of_who_admits),
        cmocka_unit_test(forgets_the_least),
        cmocka_unit_test(forgets_a_key),
        cmocka_unit_test(needs_room_for_one),
        cmocka_unit_test(takes_none_for_anothers),
        cmocka_unit_test(holds_for_a_while),
        cmocka_unit_test(tells_claims_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
