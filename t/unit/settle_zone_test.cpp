/* Copyright (C) the limit_sliding authors */

/*
 * Keys that may owe, in a zone: sums to the unit, other limits, other keys, other
 * threads, what is given back late, and damaged memory.
 */

#include "rounds.hpp"
#include "settle.hpp"

#define THREADS 4

struct settled_key_t {
    Policy policy;
    Zone *zone;
    uint64_t now_ms;

    explicit settled_key_t(const Policy &p, size_t bytes = PAIR_BYTES)
        : policy(p), zone(make_zone_for(&p, bytes)), now_ms(PRESENT * p.window_ms + 7) {}
    ~settled_key_t() { free(zone); }

    Claim claim(uint64_t limit) const { return claim_of(zone, &policy, 1, (uint32_t)limit, 1); }

    uint64_t charge(uint64_t limit, uint64_t cost) const {
        return limit_sliding::charge(claim(limit), cost, now_ms);
    }

    Claim acquire(uint64_t limit, uint64_t cost) const {
        return ::acquire(zone, &policy, 1, (uint32_t)limit, (uint32_t)cost, now_ms);
    }

    uint64_t used(uint64_t limit) const {
        Claim look = claim(limit);

        look.cost = 0;
        look.purpose = Purpose::kLook;
        limit_sliding::acquire(&look, 1, now_ms);

        return policy.used(look.describe(now_ms));
    }
};

static bool is_bucket(const Policy &policy) { return policy.algorithm >= Algorithm::kTokenBucket; }

/* So many windows may be owed. */
static uint64_t most_windows(const Policy &policy) {
    uint64_t longest = ((1ull << 32) - 1) / policy.window_ms;

    return !is_bucket(policy) ? 1000 : longest < 64 ? longest : 64;
}

/* Charges of a bucket round what it owes to a 2^-12th ms, or to less. */
static uint64_t rounding(const Policy &policy, uint64_t limit) {
    return is_bucket(policy) && limit > kNarrowMax ? (limit / policy.window_ms >> 12) + 1 : 0;
}

/* Charges, and what is given back, are told to the unit, up to the most. */
static void test_sums(void **state) {
    (void)state;

    each_subject([](const Policy &policy, uint64_t limit) {
        uint64_t random = limit + policy.window_ms;
        uint64_t most = most_windows(policy) * limit + policy.capacity(limit);
        uint64_t sum = 0;
        uint64_t less = 0;
        settled_key_t key(policy);

        while (sum < most - most / 8) {
            uint64_t cost = random_below(&random, most / 8 + 1) + 1;

            assert_int_equal(key.charge(limit, cost), 0);
            sum += cost;
            less += 2 * rounding(policy, limit);
            assert_in_range(key.used(limit), sum - std::min(sum, less), sum + (less > 0));

            cost = random_below(&random, cost / 2 + 1);
            limit_sliding::give_back(key.claim(limit), cost, key.now_ms);
            sum -= cost;
            assert_in_range(key.used(limit), sum - std::min(sum, less), sum + (less > 0));
        }

        /* 49 days are not a whole number of windows */
        if (policy.window_ms < DAY_MS || !is_bucket(policy)) {
            assert_in_range(key.charge(limit, most + 5), sum + 5 - std::min(sum, less), sum + 5);
            assert_in_range(key.used(limit), most - std::min(most, less), most);
        }

        assert_in_range(key.charge(limit, 1ull << 53), (1ull << 53) - most, 1ull << 53);
    });
}

/* A higher limit admits as soon as it has room, and a lower one does not. */
static void test_other_limits(void **state) {
    (void)state;

    each_subject([](const Policy &policy, uint64_t limit) {
        uint64_t windows = most_windows(policy) - 1;
        uint64_t owed = (windows + 1) * limit + 1;
        uint64_t higher = owed + owed / 200 + 9;
        settled_key_t key(policy);

        if (limit < 10 || higher > kLimitMax || policy.burst != 0
            || policy.algorithm == Algorithm::kLeakyBucket) {
            return;
        }

        assert_int_equal(key.charge(limit, owed), 0);

        uint64_t used = key.used(higher);

        assert_in_range(used, owed, owed + owed / 256);
        assert_int_equal(key.acquire(limit / 10, 1).outcome, Outcome::kRejected);
        assert_int_equal(key.acquire(higher, higher - used + 1).outcome, Outcome::kRejected);
        assert_int_equal(key.acquire(higher, higher - used).outcome, Outcome::kAdmitted);
        assert_int_equal(key.used(higher), higher);
        assert_int_equal(key.acquire(higher, 1).outcome, Outcome::kRejected);

        /* the debt is none any more, and its state as old as any */
        for (unsigned i = 0; i < 30; i++) {
            key.now_ms += (windows / 20 + 2) * policy.window_ms;
            assert_int_equal(key.used(higher), 0);
        }
    });
}

/* A debt that has been paid has room for all that a higher limit admits. */
static void test_a_higher_limit_after_a_debt(void **state) {
    (void)state;

    each_subject([](const Policy &policy, uint64_t limit) {
        settled_key_t key(policy);

        if (limit > 1000 || policy.burst != 0) { return; }

        key.charge(limit, limit + limit / 2 + 1);
        key.now_ms += policy.window_ms;

        uint64_t higher = policy.algorithm == Algorithm::kLeakyBucket ? 1 : kLimitMax;
        uint64_t cost = policy.capacity(higher) / 2;

        if (cost > 0) {
            assert_int_equal(key.acquire(higher, cost).outcome, Outcome::kAdmitted);
            assert_in_range(key.used(higher), cost, cost + 2 * limit + 65536);
        }
    });
}

/* A lower limit that has no room for what a key owes already loses none of it. */
static void test_a_lower_limit_has_no_room(void **state) {
    (void)state;

    each_subject([](const Policy &policy, uint64_t limit) {
        settled_key_t key(policy);

        if (limit < 1000 || limit > kNarrowMax || policy.burst != 0) { return; }

        key.charge(limit, most_windows(policy) * limit);

        uint64_t used = key.used(limit);

        assert_int_equal(key.charge(limit / 100, 3), 3);
        assert_int_equal(key.used(limit), used);
    });
}

/* A wait that is told under a lower or higher limit than that of the charge. */
static void test_waits_under_other_limits(void **state) {
    uint64_t random = 1;

    (void)state;

    each_subject([&](const Policy &policy, uint64_t limit) {
        /* a counter rounds what it has of those */
        if (limit > kNarrowMax && !is_bucket(policy)) { return; }

        for (unsigned i = 0; i < 8; i++) {
            uint64_t other = random_scale(&random, 1, limit < kNarrowMax ? 4 * limit : kNarrowMax);
            uint64_t cost = random_below(&random, policy.capacity(other)) + 1;
            settled_key_t key(policy);

            key.now_ms += random_below(&random, policy.window_ms);
            key.charge(limit, random_below(&random, 40 * limit) + 1);

            Claim claim = key.acquire(other, cost);
            uint64_t wait_ms = claim.describe(key.now_ms).retry_after_ms;

            if (claim.outcome == Outcome::kAdmitted) { continue; }

            assert_int_equal(wait_ms, claim.retry_after_ms(key.now_ms));
            key.now_ms += wait_ms - 1;
            assert_int_equal(key.acquire(other, cost).outcome, Outcome::kRejected);
            key.now_ms++;
            assert_int_equal(key.acquire(other, cost).outcome, Outcome::kAdmitted);
        }
    });
}

/* In the long run, a key has its limit in each window, and what it owes. */
static void test_long_run(void **state) {
    uint64_t random = 1;

    (void)state;

    each_subject([&](const Policy &policy, uint64_t limit) {
        settled_key_t key(policy);
        uint64_t since_ms = key.now_ms;
        uint64_t capacity = policy.capacity(limit);
        uint64_t sum = 0;

        if (policy.window_ms > MINUTE_MS || limit > 1000) { return; }

        for (unsigned i = 0; i < 1000; i++) {
            key.now_ms += random_below(&random, policy.window_ms / 2);

            for (uint64_t cost = capacity; cost > 0; cost /= 2) {
                while (key.acquire(limit, cost).outcome == Outcome::kAdmitted) {
                    sum += cost;
                }
            }

            if (random_below(&random, 20) == 0) {
                uint64_t cost = random_below(&random, 3 * limit) + 1;

                sum += cost - key.charge(limit, cost);
            }

            uint64_t used = key.used(limit);
            uint64_t owed = used > capacity ? used - capacity : 0;
            uint64_t windows = (key.now_ms - since_ms) / policy.window_ms + 2;

            assert_true(sum <= windows * limit + owed + (is_bucket(policy) ? capacity : 0));
        }
    });
}

/* A key owes until that has run off, whatever other keys come. */
static void test_is_kept(void **state) {
    static const uint64_t limits[] = {3, 10, 1000};

    (void)state;

    for (size_t kind = 0; kind < LENGTH(settle_kinds); kind++) {
        for (uint64_t limit : limits) {
            Policy policy = policy_of(kind, 60 * MINUTE_MS, limit);
            uint64_t windows = most_windows(policy) - 1;
            settled_key_t key(policy);
            uint64_t other = 2;

            assert_int_equal(key.charge(limit, windows * limit), 0);

            for (uint64_t i = 0; i < windows - 2; i++) {
                assert_int_equal(key.used(limit), (windows - i) * limit);

                for (unsigned j = 0; j < 20; j++) {
                    acquire(key.zone, &policy, other++, (uint32_t)limit, 1, key.now_ms);
                }

                key.now_ms += policy.window_ms;
            }

            assert_true(stats_of(key.zone).evicted > 0);
        }
    }
}

/* What is given back is none any more at once, and later: its place in the table
 * is not kept for a state whose time stamp has wrapped. */
static void test_gives_a_debt_back(void **state) {
    (void)state;

    each_subject([](const Policy &policy, uint64_t limit) {
        uint64_t owed = most_windows(policy) * limit;

        for (uint64_t idle = 1; idle < 2000; idle += 1 + idle / 2) {
            settled_key_t key(policy);

            key.charge(limit, owed);
            limit_sliding::give_back(key.claim(limit), owed - 1, key.now_ms);
            assert_in_range(key.used(limit), rounding(policy, limit) == 0,
                            1 + rounding(policy, limit));

            key.now_ms += (idle + 2) * policy.window_ms;
            assert_int_equal(key.used(limit), 0);
            assert_int_equal(key.acquire(limit, 1).outcome, Outcome::kAdmitted);
        }
    });
}

/* Nothing is given back after 128 windows, or two hours. */
static void test_refund_in_time(void **state) {
    (void)state;

    each_subject([](const Policy &policy, uint64_t limit) {
        uint64_t longest_ms = 128 * policy.window_ms;

        if (longest_ms > 2 * 60 * MINUTE_MS) { longest_ms = 2 * 60 * MINUTE_MS; }

        for (uint64_t late = 0; late < 2; late++) {
            settled_key_t key(policy);
            Claim claim = key.acquire(limit, 1);
            uint64_t since_ms = key.now_ms;

            key.charge(limit, 40 * limit);
            key.now_ms += longest_ms - 1 + late;
            key.charge(limit, 40 * limit);

            uint64_t used = key.used(limit);

            limit_sliding::refund(claim, 1, since_ms, key.now_ms);
            assert_in_range(key.used(limit), used - 1 + late - rounding(policy, limit),
                            used - 1 + late);
        }
    });
}

/* ---- threads ---- */

/* In each round, all charge one key, and give some of that back. */
struct charges_t {
    settled_key_t key;
    uint64_t limit;
    std::atomic<uint64_t> sum;

    charges_t(const Policy &policy, uint64_t l) : key(policy), limit(l), sum(0) {}

    void begin(unsigned) {
        sum = 0;
        key.now_ms += 2000 * key.policy.window_ms;
    }

    void work(unsigned, uint64_t *random) {
        for (unsigned i = 0; i < 50; i++) {
            uint64_t cost = random_below(random, limit / 10) + 1;
            uint64_t less = random_below(random, cost);

            assert_int_equal(key.charge(limit, cost), 0);
            limit_sliding::give_back(key.claim(limit), less, key.now_ms);
            sum += cost - less;
        }
    }

    void end() { assert_int_equal(key.used(limit), sum); }
};

static void test_threads(void **state) {
    (void)state;

    for (size_t kind = 0; kind < LENGTH(settle_kinds); kind++) {
        charges_t game(policy_of(kind, MINUTE_MS, 100000), 100000);

        Rounds<charges_t>::play(&game, THREADS, 100, 2);
    }
}

/* ---- damaged memory ---- */

static void check_state(State next) {
    assert_int_equal(next >> Copy::kStateBits, 0);
    assert_int_not_equal(next, Copy::kDead);
}

static void test_damage(void **state) {
    uint64_t random = 1;

    (void)state;

    each_subject([&](const Policy &policy, uint64_t limit) {
        for (unsigned i = 0; i < 500; i++) {
            uint64_t now_ms = random_next(&random) >> (20 + random_below(&random, 44));
            uint64_t cost = random_scale(&random, 1, 1ull << 53);
            State damaged = random_next(&random) >> (2 + 4 * random_below(&random, 3));
            State other = random_next(&random) >> 2;
            State next = 0;
            Verdict verdict;

            with_algorithm(policy, now_ms, limit, [&](const auto &algorithm) {
                algorithm.charge(damaged, cost, &next);
                check_state(next);
                check_state(algorithm.refund(damaged, other, cost % kCostMax));
                check_state(algorithm.give_back(damaged, cost));
                algorithm.describe(damaged, cost % kCostMax, &verdict);
                algorithm.retry_after_ms(damaged, cost % kCostMax);
                algorithm.expires_ms(damaged);
                algorithm.rank(damaged);
                assert_true(algorithm.share(damaged) >= 0);
                assert_true(algorithm.epochs_within(algorithm.owed_ms(damaged)) < 256);

                if (algorithm.admit(damaged, cost % kCostMax, &next)) { check_state(next); }
            });

            assert_true(verdict.remaining <= policy.capacity(limit));
        }
    });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_other_limits),
        cmocka_unit_test(test_a_higher_limit_after_a_debt),
        cmocka_unit_test(test_a_lower_limit_has_no_room),
        cmocka_unit_test(test_waits_under_other_limits),
        cmocka_unit_test(test_long_run),
        cmocka_unit_test(test_is_kept),
        cmocka_unit_test(test_gives_a_debt_back),
        cmocka_unit_test(test_refund_in_time),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_damage),
    };

    return cmocka_run_group_tests_name("settle in a zone", tests, NULL, NULL);
}
