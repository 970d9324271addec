/* Copyright (C) the limit_sliding authors */

/*
 * Keys that may owe, in a zone: sums to the unit, debts that are paid in time, the long run, other
 * keys, threads, and damaged memory.
 */

#include "rounds.hpp"

#define CHECK(condition) assert_true(condition)

#include "settle.hpp"

#define THREADS 4

/* Returns a time at the begin of a window. */
static uint64_t begin_ms(const Policy &policy) {
    return policy.calendar == Calendar::kNone ? PRESENT * policy.window_ms
                                              : calendar_begin_ms(policy.calendar, nullptr, 600);
}

static uint64_t after_ms(const Policy &policy, uint64_t windows) {
    return policy.calendar == Calendar::kNone
               ? (PRESENT + windows) * policy.window_ms
               : calendar_begin_ms(policy.calendar, nullptr, 600 + windows);
}

static uint64_t charge(const settle_key_t &key, const settle_limit_t &by, uint64_t cost,
                       uint64_t now_ms) {
    return limit_sliding::charge(key.claim(by, 1), cost, now_ms);
}

/* Charges and refunds are told to the unit, up to the most, however many there are. */
static void test_sums(void **state) {
    (void)state;

    each_subject([](const Policy &policy, uint64_t limit) {
        const settle_limit_t by = {limit, false};
        const uint64_t now_ms = begin_ms(policy);
        const uint64_t capacity = policy.capacity(limit);
        const uint64_t most = std::min(Debts::kUnitsMax, 1000 * limit) + capacity;
        /* histories of large limits are rounded */
        const uint64_t slack = limit > kNarrowMax ? limit >> 11 : 0;
        uint64_t random = limit + policy.window_ms;
        uint64_t sum = 0;
        settle_key_t key(policy, true);

        while (sum < most - most / 8) {
            uint64_t cost = random_below(&random, most / 8 + 1) + 1;

            assert_int_equal(charge(key, by, cost, now_ms), 0);
            sum += cost;
            assert_in_range(key.used(by, now_ms), sum - std::min(sum, slack), sum + slack);

            cost = random_below(&random, cost / 2 + 1);
            limit_sliding::give_back(key.claim(by, 0), cost, now_ms);
            sum -= cost;
            assert_in_range(key.used(by, now_ms), sum - std::min(sum, slack), sum + slack);
        }

        assert_in_range(charge(key, by, most + 5, now_ms), sum + 5 - std::min(sum, slack),
                        sum + 5 + slack);
        assert_in_range(key.used(by, now_ms), most - slack, most + slack);
        assert_int_equal(charge(key, by, 1ull << 53, now_ms), 1ull << 53);
        limit_sliding::give_back(key.claim(by, 0), UINT64_MAX, now_ms);
        assert_in_range(key.used(by, now_ms), 0, slack != 0);
        assert_true(key.would_admit(by, std::min(capacity - (slack != 0), kCostMax), now_ms));
    });
}

/* A debt of D units is paid in D/L windows, within one, and neither earlier nor later: after the
 * units of the history, which leave first. */
static void test_is_paid_in_time(void **state) {
    (void)state;

    each_subject([](const Policy &policy, uint64_t limit) {
        const settle_limit_t by = {limit, false};
        const uint64_t capacity = policy.capacity(limit);
        const uint64_t first = (capacity + limit - 1) / limit;

        if (capacity < limit || first > Debts::kWaitMax / kDebtParts) { return; }

        for (uint64_t windows : {1, 2, 7, 100, 999}) {
            for (uint64_t owed : {windows * limit, windows * limit - limit / 2}) {
                settle_key_t key(policy, true);

                /* 34 windows of the largest limits fit a debt */
                if (owed > Debts::kUnitsMax) { continue; }

                assert_int_equal(charge(key, by, capacity + owed, begin_ms(policy)), 0);

                for (uint64_t i = 1; i <= first + windows; i += 1 + i / 5) {
                    const uint64_t now_ms = after_ms(policy, i);
                    const uint64_t gone = std::min(i * limit, capacity + owed);
                    const uint64_t used = key.used(by, now_ms);

                    /* counters fade the units of the window before */
                    assert_true(used + limit + 1 >= capacity + owed - gone + 1);
                    assert_true(used <= capacity + owed - gone + limit + limit / 1000);
                }

                assert_int_equal(key.used(by, after_ms(policy, first + windows + 2)), 0);
            }
        }
    });
}

/* A bucket that drains slowly pays what it owes once it is empty, as Redis has it pay. */
static void test_slow_bucket(void **state) {
    (void)state;

    for (size_t kind = 0; kind < LENGTH(settle_kinds); kind++) {
        for (uint32_t burst : {1000, 4096, 29000}) {
            Policy policy = policy_of(kind, SECOND_MS, 1);
            policy.burst = burst;
            if (!policy.is_bucket()) { continue; }

            const uint64_t capacity = policy.capacity(1);
            const settle_limit_t by = {1, false};
            settle_key_t key(policy, true);

            assert_int_equal(charge(key, by, capacity + 1000, begin_ms(policy)), 0);

            const uint64_t now_ms = begin_ms(policy) + (capacity + 1000) * policy.window_ms;

            assert_int_equal(key.used(by, now_ms - 999 * SECOND_MS), 999);
            assert_int_equal(key.used(by, now_ms - SECOND_MS), 1);
            assert_int_equal(key.used(by, now_ms), 0);
        }
    }
}

/* Requests of places with other rates neither speed up a debt nor make it last. */
static void test_places_do_not_matter(void **state) {
    (void)state;

    each_subject([](const Policy &policy, uint64_t limit) {
        const settle_limit_t by = {limit, false};
        uint64_t random = limit;
        settle_key_t one(policy, true), other(policy, true);

        if (limit < 4 || limit > kNarrowMax / 8) { return; }

        assert_int_equal(charge(one, by, 300 * limit, begin_ms(policy)), 0);
        assert_int_equal(charge(other, by, 300 * limit, begin_ms(policy)), 0);

        for (uint64_t i = 0; i < 350; i++) {
            const uint64_t now_ms = after_ms(policy, i);
            const settle_limit_t place = {random_below(&random, 8 * limit) + 1, false};

            limit_sliding::give_back(one.claim(by, 0), 1, now_ms);
            limit_sliding::give_back(other.claim(place, 0), 1, now_ms);
            (void)other.acquire(place, kCostMax, now_ms);
            assert_int_equal(one.used(by, now_ms), other.used(by, now_ms));
        }
    });
}

/* In the long run, a key has its limit in each window, and its debt. */
static void test_long_run(void **state) {
    uint64_t random = 1;

    (void)state;

    each_subject([&](const Policy &policy, uint64_t limit) {
        const settle_limit_t by = {limit, false};
        const uint64_t since_ms = begin_ms(policy);
        const uint64_t capacity = policy.capacity(limit);
        uint64_t now_ms = since_ms;
        uint64_t sum = 0;
        settle_key_t key(policy, true);

        if (policy.window_ms > MINUTE_MS || limit > 1000) { return; }

        for (unsigned i = 0; i < 1000; i++) {
            now_ms += random_below(&random, policy.window_ms / 2);

            for (uint64_t cost = capacity; cost > 0; cost /= 2) {
                while (key.acquire(by, cost, now_ms).outcome == Outcome::kAdmitted) {
                    sum += cost;
                }
            }

            if (random_below(&random, 20) == 0) {
                uint64_t cost = random_below(&random, 3 * limit) + 1;

                sum += cost - charge(key, by, cost, now_ms);
            }

            uint64_t used = key.used(by, now_ms);
            uint64_t owed = used > capacity ? used - capacity : 0;
            uint64_t windows = (now_ms - since_ms) / policy.window_ms + 2;

            assert_true(sum <= windows * limit + owed + (is_bucket(policy) ? capacity : 0));
        }
    });
}

/* A key that is charged more than it reserves, again and again, has its limit, and not less. */
static void test_a_busy_debtor_gets_its_limit(void **state) {
    (void)state;

    for (size_t kind = 0; kind < LENGTH(settle_kinds); kind++) {
        const Policy policy = policy_of(kind, MINUTE_MS, 1000);
        const settle_limit_t by = {1000, false};
        settle_key_t key(policy, true);
        uint64_t sum = 0;

        /* strict counters have longer windows */
        if (policy.calendar != Calendar::kNone || policy.capacity(1000) < 1000 || policy.strict) {
            continue;
        }

        for (uint64_t ms = 0; ms < 60 * MINUTE_MS; ms += 100) {
            const uint64_t now_ms = begin_ms(policy) + ms;

            if (key.acquire(by, 1, now_ms).outcome != Outcome::kAdmitted) { continue; }

            assert_int_equal(charge(key, by, 29, now_ms), 0);
            sum += 30;
        }

        assert_in_range(sum, 60 * 1000 * 85 / 100,
                        60 * 1000 + 1030 + (is_bucket(policy) ? policy.capacity(1000) : 0));
    }
}

/* A key owes until that has run off, whatever other keys come. */
static void test_is_kept(void **state) {
    (void)state;

    for (size_t kind = 0; kind < LENGTH(settle_kinds); kind++) {
        for (uint64_t limit : {3, 10, 1000}) {
            const Policy policy = policy_of(kind, 60 * MINUTE_MS, limit);
            const settle_limit_t by = {limit, false};
            settle_key_t key(policy, true, kZoneAlign + 4096);
            uint64_t other = 2;

            if (policy.calendar != Calendar::kNone) { continue; }

            assert_int_equal(charge(key, by, 100 * limit, begin_ms(policy)), 0);

            for (uint64_t i = 0; i < 90; i++) {
                const uint64_t now_ms = after_ms(policy, i);

                assert_true(key.used(by, now_ms) + (i + 1) * limit >= 100 * limit);

                for (unsigned j = 0; j < 300; j++) {
                    acquire(key.zone(), &policy, other++, (uint32_t)limit, 1, now_ms);
                }
            }

            assert_true(stats_of(key.zone()).evicted > 0);
        }
    }
}

/* The history gives nothing back after 128 windows, or two hours; the debt does. */
static void test_refund_in_time(void **state) {
    (void)state;

    each_subject([](const Policy &policy, uint64_t limit) {
        const settle_limit_t by = {limit, false};
        const uint64_t since_ms = begin_ms(policy);
        const uint64_t longest_ms = std::min<uint64_t>(128 * policy.window_ms, 120 * MINUTE_MS);
        settle_key_t key(policy, true);
        const Claim claim = key.acquire(by, 1, since_ms);
        const uint64_t now_ms = since_ms + longest_ms;

        limit_sliding::charge(key.claim(by, 0), policy.capacity(limit) + 3 * limit, now_ms);

        const uint64_t used = key.used(by, now_ms);

        limit_sliding::refund(claim, 1, since_ms, now_ms);
        assert_int_equal(key.used(by, now_ms), used - 1);
        limit_sliding::give_back(key.claim(by, 0), 4 * limit, now_ms);

        const uint64_t left = key.used(by, now_ms);

        limit_sliding::refund(claim, 1, since_ms, now_ms);
        assert_int_equal(key.used(by, now_ms), left);
    });
}

/* A request gives back no more than it has taken, whatever it turned out to cost. */
static void test_refund_of_more(void **state) {
    (void)state;

    each_subject([](const Policy &policy, uint64_t limit) {
        const settle_limit_t by = {limit, false};
        const uint64_t now_ms = begin_ms(policy);
        settle_key_t key(policy, true);
        const Claim claim = key.acquire(by, 1, now_ms);

        limit_sliding::charge(key.claim(by, 0), 4 * limit, now_ms);

        const uint64_t used = key.used(by, now_ms);

        limit_sliding::refund(claim, limit + 1, now_ms, now_ms);
        assert_int_equal(key.used(by, now_ms), used - 1);
    });
}

/* ---- threads ---- */

/* In each round, all charge one key, and give some of that back. */
struct charges_t {
    settle_key_t key;
    settle_limit_t by;
    uint64_t now_ms;
    std::atomic<uint64_t> sum;

    charges_t(const Policy &policy, uint64_t limit)
        : key(policy, true), by({limit, false}), now_ms(begin_ms(policy)), sum(0) {}

    void begin(unsigned) {
        sum = 0;
        now_ms += 5000 * key.policy().window_ms;
    }

    void work(unsigned, uint64_t *random) {
        for (unsigned i = 0; i < 50; i++) {
            uint64_t cost = random_below(random, by.limit / 10) + 1;
            uint64_t less = random_below(random, cost);

            assert_int_equal(charge(key, by, cost, now_ms), 0);
            limit_sliding::give_back(key.claim(by, 0), less, now_ms);
            sum += cost - less;
        }
    }

    void end() { assert_int_equal(key.used(by, now_ms), sum); }
};

static void test_threads(void **state) {
    (void)state;

    for (size_t kind = 0; kind < LENGTH(settle_kinds); kind++) {
        const Policy policy = policy_of(kind, MINUTE_MS, 100000);

        if (policy.calendar != Calendar::kNone || policy.has_rings()) { continue; }

        charges_t game(policy, 100000);

        Rounds<charges_t>::play(&game, THREADS, 100, 2);
    }
}

/* ---- the table ---- */

static DebtClock clock_at(uint64_t windows) {
    const uint64_t window = PRESENT + windows;

    return {window * MINUTE_MS, window * kDebtParts, 10, binary_digits(MINUTE_MS)};
}

static const DebtClock kClock = clock_at(0);

/* Without a place the smallest debt is lost, and counted. */
static void test_smallest_is_lost(void **state) {
    Debts *debts = make_debts();

    (void)state;

    for (uint64_t key = 1; key <= 4; key++) {
        assert_int_equal(debts->add(key << 20, key * 100, 0, false, kClock), 0);
    }

    assert_int_equal(debts->add(5ull << 20, 50, 0, false, kClock), 50);
    assert_int_equal(debts->find(5ull << 20, kClock).units, 0);
    assert_int_equal(debts->add(6ull << 20, 150, 0, false, kClock), 100);
    assert_int_equal(debts->find(1ull << 20, kClock).units, 0);
    assert_int_equal(debts->find(6ull << 20, kClock).units, 150);

    /* a debt that was paid is no more than none */
    assert_int_equal(debts->add(7ull << 20, 1, 0, false, clock_at(100)), 0);
    free(debts);
}

/* Debts of long ago do not come back when the numbers of windows and epochs wrap. */
static void test_old_debts(void **state) {
    (void)state;

    for (uint64_t windows = 1; windows < 1000000; windows += 1 + windows / 9) {
        for (bool is_swept : {false, true}) {
            Debts *debts = make_debts();

            debts->add(1, 10 * Debts::kWindowsMax, kClock.part + Debts::kWaitMax, false, kClock);

            for (uint64_t swept = 100000; is_swept && swept < windows; swept += 100000) {
                debts->sweep((PRESENT + swept) * MINUTE_MS, 0, 64);
            }

            const uint64_t wait = Debts::kWaitMax / kDebtParts;
            const uint64_t paid = windows > wait ? windows - wait : 0;
            const uint64_t units = debts->find(1, clock_at(windows)).units;

            if (windows < 400000 || is_swept) {
                assert_int_equal(units,
                                 10 * (Debts::kWindowsMax - std::min(paid, Debts::kWindowsMax)));
            }

            free(debts);
        }
    }
}

/* A full zone that denies has no slot for a key that owes.  The debt stays, and the request is told
 * when a slot expires. */
static void test_no_slot_for_a_debtor(void **state) {
    Policy policy = log_of(MINUTE_MS);
    Debts *debts = make_debts();
    uint64_t now_ms = PRESENT * MINUTE_MS;

    (void)state;

    policy.full = WhenFull::kDeny;
    Zone *zone = make_zone_for(&policy, RING_PAIR_BYTES);
    Claim claim = claim_of(zone, debts, &policy, 1, 10, 1);
    assert_int_equal(charge(claim, 15, now_ms), 0);

    now_ms += MINUTE_MS + SECOND_MS;
    for (uint64_t key = 0; key < PAIR_SLOTS; key++) {
        assert_true(admits(zone, &policy, 100 + key, 10, 1, now_ms));
    }

    acquire(&claim, 1, now_ms);
    assert_int_equal(claim.outcome, Outcome::kRefused);
    assert_true(claim.standing == Standing::kHere);
    assert_in_range(claim.retry_after_ms(now_ms), MINUTE_MS, MINUTE_MS + BEHIND_MS);

    Claim look = claim_of(zone, debts, &policy, 1, 10, 0);
    look.purpose = Purpose::kLook;
    acquire(&look, 1, now_ms);
    assert_int_equal(look.describe(now_ms).remaining, 5);
    free(zone);
    free(debts);
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
            uint64_t now_ms = random_next(&random) >> (24 + random_below(&random, 40));
            uint64_t cost = random_scale(&random, 1, 1ull << 53);
            State damaged = random_next(&random) >> (2 + 4 * random_below(&random, 3));
            State other = random_next(&random) >> 2;
            State next = 0;
            Verdict verdict;

            if (policy.has_rings()) { return; }

            with_algorithm(policy, now_ms, limit, [&](const auto &algorithm) {
                check_state(algorithm.refund(damaged, other, cost % kCostMax));
                check_state(algorithm.give_back(damaged, cost));
                algorithm.describe(damaged, cost % kCostMax, &verdict);
                algorithm.retry_after_ms(damaged, cost % kCostMax);
                algorithm.expires_ms(damaged);
                algorithm.rank(damaged);
                assert_true(algorithm.share(damaged) >= 0);

                if (algorithm.admit(damaged, cost % kCostMax, &next)) { check_state(next); }
            });

            assert_true(verdict.remaining <= policy.capacity(limit));
        }
    });
}

static void test_damaged_debts(void **state) {
    uint64_t random = 1;

    (void)state;

    for (unsigned i = 0; i < draws(20000); i++) {
        const Policy policy = policy_of(i % LENGTH(settle_kinds), 30ull * DAY_MS, 100);
        const settle_limit_t by = {100, false};
        Debts *debts = make_debts();
        settle_key_t key(policy, false);
        Claim claim = key.claim(by, 1);
        const uint64_t now_ms = begin_ms(policy);

        claim.debts = debts;
        charge(claim, 300, now_ms);

        auto *words = reinterpret_cast<uint64_t *>(debts) + 8;

        for (unsigned j = 0; j < 8; j++) {
            if (words[j] != 0) {
                words[j] ^= 1ull << random_below(&random, 64);
                words[j] &= random_below(&random, 2) == 0 ? UINT64_MAX : random_next(&random);
            }
        }

        acquire(&claim, 1, now_ms);
        charge(claim, 7, now_ms);
        give_back(claim, 3, now_ms);
        claim.forget(now_ms);
        debts->sweep(now_ms, 0, 64);
        free(debts);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_is_paid_in_time),
        cmocka_unit_test(test_places_do_not_matter),
        cmocka_unit_test(test_long_run),
        cmocka_unit_test(test_a_busy_debtor_gets_its_limit),
        cmocka_unit_test(test_is_kept),
        cmocka_unit_test(test_refund_in_time),
        cmocka_unit_test(test_refund_of_more),
        cmocka_unit_test(test_slow_bucket),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_smallest_is_lost),
        cmocka_unit_test(test_old_debts),
        cmocka_unit_test(test_no_slot_for_a_debtor),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_damaged_debts),
    };

    return cmocka_run_group_tests_name("settle in a zone", tests, NULL, NULL);
}
