/* Copyright (C) the limit_sliding authors */

/*
 * Rejected requests that are recorded, against a plain list of all attempts.
 */

#include "core/policy/override.hpp"
#include "core/rules/counter_kinds.hpp"
#include "core/table/ring.hpp"
#include "rounds.hpp"
#include "support.hpp"

#define ZONE_BYTES MEGABYTE_ZONE_BYTES
#define REQUESTS 4000

struct subject_t {
    Algorithm algorithm;
    uint32_t precision;
    bool strict;
};

static const subject_t subjects[] = {
    {Algorithm::kCounter, 0, false},     {Algorithm::kCounter, 1, false},
    {Algorithm::kCounter, 0, true},      {Algorithm::kCounter, 1, true},
    {Algorithm::kCounter, 7, false},     {Algorithm::kCounter, 60, true},
    {Algorithm::kLog, 0, false},         {Algorithm::kFixed, 0, false},
    {Algorithm::kTokenBucket, 0, false}, {Algorithm::kLeakyBucket, 0, false},
};

static const uint32_t limits[] = {1, 2, 3, 5, 10, 21, 22, 30, 100, 255, 1000, 5000};

static Policy policy_of(const subject_t &subject, uint64_t window_ms, uint32_t burst) {
    Policy policy = evicting(window_ms);

    policy.algorithm = subject.algorithm;
    policy.precision = subject.precision;
    policy.strict = subject.strict;
    policy.burst = subject.algorithm >= Algorithm::kTokenBucket ? burst : 0;
    policy.counts_rejected = true;

    return policy;
}

/* A request, as a limit that counts rejected ones decides it. */
static Claim attempt(Zone *zone, const Policy *policy, uint32_t limit, uint32_t cost,
                     uint64_t now_ms) {
    Claim claim = acquire(zone, policy, 1, limit, cost, now_ms);

    if (claim.outcome == Outcome::kRejected) { record_rejected(&claim, now_ms); }

    return claim;
}

static int would_admit(Zone *zone, const Policy *policy, uint32_t limit, uint32_t cost,
                       uint64_t now_ms) {
    Claim claim = claim_of(zone, policy, 1, limit, cost);

    claim.purpose = Purpose::kLook;
    limit_sliding::acquire(&claim, 1, now_ms);

    return claim.outcome == Outcome::kAdmitted;
}

/* All attempts of a key under one limit. */
struct model_t {
    const Policy &policy;
    uint64_t limit;

    struct {
        uint64_t at_ms;
        uint64_t cost;
        bool is_admitted;
    } list[REQUESTS];

    size_t n = 0;
    uint64_t level = 0; /* of a bucket, x w, or of a fixed window */
    uint64_t then = 0;

    uint64_t parts() const {
        return policy.precision != 0 ? policy.precision : counter_parts(limit);
    }

    uint64_t part_of(uint64_t at_ms) const { return at_ms * parts() / policy.window_ms; }

    /* Returns the units of attempts, or of admitted ones, since then. */
    uint64_t units_since(uint64_t at_ms, bool admitted_only) const {
        uint64_t units = 0;

        for (size_t i = n; i > 0 && list[i - 1].at_ms >= at_ms; i--) {
            units += admitted_only && !list[i - 1].is_admitted ? 0 : list[i - 1].cost;
        }

        return units;
    }

    /* The same of the last so many parts, with the present one. */
    uint64_t units_in_parts(uint64_t now_ms, uint64_t count) const {
        uint64_t units = 0;

        for (size_t i = n; i > 0 && part_of(list[i - 1].at_ms) + count > part_of(now_ms); i--) {
            units += list[i - 1].cost;
        }

        return units;
    }

    uint64_t full() const {
        if (policy.algorithm == Algorithm::kFixed) { return limit; }

        return policy.capacity(limit) * policy.window_ms;
    }

    uint64_t unit() const { return policy.algorithm == Algorithm::kFixed ? 1 : policy.window_ms; }

    void advance(uint64_t now_ms) {
        if (policy.algorithm == Algorithm::kFixed) {
            level = now_ms / policy.window_ms == then / policy.window_ms ? level : 0;
        } else {
            level -= std::min(level, (now_ms - then) * limit);
        }

        then = now_ms;
    }

    /* Would it be admitted?  1, 0, or -1 for one that may be either. */
    int judge(uint64_t now_ms, uint64_t cost) {
        uint64_t back = now_ms - std::min(now_ms, policy.window_ms - 1);

        switch (policy.algorithm) {
        case Algorithm::kLog:
            return units_since(back, false) + cost <= limit;
        case Algorithm::kCounter:
            return units_in_parts(now_ms, parts() + 1) + cost <= limit ? 1
                   : units_in_parts(now_ms, parts()) + cost > limit    ? 0
                                                                       : -1;
        default:
            advance(now_ms);
            return level + cost * unit() <= full();
        }
    }

    void add(uint64_t now_ms, uint64_t cost, bool is_admitted) {
        list[n++] = {now_ms, cost, is_admitted};
        advance(now_ms);
        level = std::min(std::max(level, full()), level + cost * unit());
    }

    /* Returns the most that may be admitted in the window that ends with the last. */
    uint64_t most() const {
        switch (policy.algorithm) {
        case Algorithm::kLog:
            return limit;
        case Algorithm::kCounter:
            return policy.strict                          ? limit
                   : policy.precision == 0 && parts() > 1 ? limit + limit / parts()
                                                          : 2 * limit - 1;
        case Algorithm::kFixed:
            return 2 * limit;
        default:
            return limit + policy.capacity(limit);
        }
    }
};

/* Times that are mostly close, so that the limit is met. */
static uint64_t next_ms(uint64_t *random, const Policy &policy, uint64_t limit, uint64_t now_ms) {
    uint64_t w = policy.window_ms;

    switch (random_below(random, 24)) {
    case 0:
        return now_ms + random_below(random, 2 * w);
    case 1:
        return (now_ms / w + 1) * w - random_below(random, 2);
    case 2:
        return now_ms + w - 1 + random_below(random, 3);
    case 3:
    case 4:
        return now_ms;
    default:
        return now_ms + random_below(random, w / (limit + limit / 2) * 2 + 2);
    }
}

static void run(const subject_t &subject, uint32_t limit, uint64_t *random) {
    uint64_t window_ms = 200 + random_below(random, 1000);
    Policy policy = policy_of(subject, window_ms, limit);
    Zone *zone = make_zone_for(&policy, ZONE_BYTES);
    uint64_t now_ms = 1000000 + random_below(random, 1000000);
    static model_t *model;

    model = new (malloc(sizeof(model_t))) model_t{policy, limit, {}};

    for (size_t i = 0; i < REQUESTS; i++) {
        uint32_t cost = random_below(random, 4) == 0
                            ? 1 + (uint32_t)random_below(random, limit)
                            : 1 + (uint32_t)random_below(random, limit / 20 + 1);

        now_ms = next_ms(random, policy, limit, now_ms);

        int expected = model->judge(now_ms, cost);
        Claim claim = attempt(zone, &policy, limit, cost, now_ms);
        bool is_admitted = claim.outcome == Outcome::kAdmitted;

        if (expected >= 0 && is_admitted != expected) {
            fail_msg("algorithm %d, precision %u, strict %d, limit %u, window %llu, request %zu:"
                     " %d, not %d",
                     (int)subject.algorithm, subject.precision, subject.strict, limit,
                     (unsigned long long)window_ms, i, is_admitted, expected);
        }

        model->add(now_ms, cost, is_admitted);

        if (is_admitted) {
            assert_in_range(model->units_since(now_ms - window_ms + 1, true), 0, model->most());
            continue;
        }

        /* it is told how long to wait, to the millisecond */
        uint64_t wait_ms = claim.describe(now_ms).retry_after_ms;

        assert_int_equal(claim.retry_after_ms(now_ms), wait_ms);
        assert_in_range(wait_ms, 1, 3 * window_ms);
        assert_true(would_admit(zone, &policy, limit, cost, now_ms + wait_ms));
        assert_false(would_admit(zone, &policy, limit, cost, now_ms + wait_ms - 1));
    }

    free(model);
    free(zone);
}

static void decides_as_attempts_tell(void **state) {
    uint64_t random = 1;

    (void)state;

    for (const subject_t &subject : subjects) {
        for (uint32_t limit : limits) {
            run(subject, limit, &random);
        }
    }
}

/* Who asks at 1.5 times the rate is admitted nothing after the first window, and who
 * stops is admitted after two more. */
static void who_knocks_stays_out(void **state) {
    const uint64_t w = MINUTE_MS;

    (void)state;

    for (const subject_t &subject : subjects) {
        for (uint32_t limit : limits) {
            Policy policy = policy_of(subject, w, 0);
            Zone *zone = make_zone_for(&policy, ZONE_BYTES);
            uint64_t begin_ms = 1000000;
            uint64_t now_ms = begin_ms;
            uint64_t knocks = 6 * limit * 3 / 2;
            uint64_t admitted = 0;
            uint64_t last = 0;

            for (uint64_t i = 0; i < knocks; i++) {
                now_ms = begin_ms + i * 2 * w / (3 * limit);

                if (attempt(zone, &policy, limit, 1, now_ms).outcome == Outcome::kAdmitted) {
                    admitted++;
                    last = now_ms - begin_ms;
                }
            }

            if (subject.algorithm == Algorithm::kFixed) {
                assert_in_range(admitted, 6 * limit, 7 * limit);
            } else {
                /* a bucket runs off while it is filled */
                assert_in_range(admitted, 1, 3 * limit);
                assert_in_range(last, 0, 3 * w);
            }

            assert_true(would_admit(zone, &policy, limit, 1, now_ms + 2 * w));
            free(zone);
        }
    }
}

/* One request for more than the limit uses up the key; none of no cost does. */
static void a_cost_is_capped(void **state) {
    (void)state;

    for (const subject_t &subject : subjects) {
        Policy policy = policy_of(subject, MINUTE_MS, 10);
        Zone *zone = make_zone_for(&policy, ZONE_BYTES);
        Claim claim = attempt(zone, &policy, 10, 1000000, 1000000);

        assert_int_equal(claim.describe(1000000).retry_after_ms, kNever);
        assert_false(would_admit(zone, &policy, 10, 1, 1000000));
        assert_true(would_admit(zone, &policy, 10, 0, 1000000));

        claim = claim_of(zone, &policy, 2, 10, 0);
        record_rejected(&claim, 1000000);
        assert_int_equal(remaining_of(zone, &policy, 2, 10, 1000000), policy.capacity(10));

        free(zone);
    }
}

/* An event for each of 50,000 ms takes no more slots than a limit's, of 128. */
static void a_log_takes_memory_by_its_limit(void **state) {
    Policy policy = policy_of({Algorithm::kLog, 0, false}, MINUTE_MS, 0);
    Zone *zone = make_zone_for(&policy, kZoneAlign + 16 * 1024);
    const uint32_t limit = 130;

    (void)state;

    for (uint64_t i = 0; i < 50000; i++) {
        assert_int_equal(
            attempt(zone, &policy, limit, 1, 1000000 + i).outcome == Outcome::kAdmitted, i < limit);
    }

    assert_int_equal(stats_of(zone).evicted, 0);

    /* the first of the newest ends after a window */
    assert_false(would_admit(zone, &policy, limit, 1, 1000000 + 50000 - limit + MINUTE_MS - 1));
    assert_true(would_admit(zone, &policy, limit, 1, 1000000 + 50000 - limit + MINUTE_MS));

    free(zone);
}

/* What a higher limit has admitted stays, whatever a lower one rejects. */
static void lower_limits_push_out_nothing(void **state) {
    (void)state;

    for (const subject_t &subject : subjects) {
        Policy policy = policy_of(subject, MINUTE_MS, 0);

        if (subject.algorithm == Algorithm::kLeakyBucket) { continue; }

        policy.held = 1000;

        Zone *zone = make_zone_for(&policy, ZONE_BYTES);
        uint64_t now_ms = 60 * MINUTE_MS;

        for (uint64_t i = 0; i < 900; i++) {
            assert_int_equal(attempt(zone, &policy, 1000, 1, now_ms + i).outcome,
                             Outcome::kAdmitted);
        }

        for (uint64_t i = 0; i < 500; i++) {
            assert_int_equal(attempt(zone, &policy, 10, 1, now_ms + 900 + i).outcome,
                             Outcome::kRejected);
        }

        /* a bucket has lost some */
        assert_in_range(remaining_of(zone, &policy, 1, 1000, now_ms + 1400), 0,
                        subject.algorithm == Algorithm::kTokenBucket ? 130 : 100);
        free(zone);
    }
}

/* A key that owes waits already: its rejected requests are not recorded. */
static void debtors_record_nothing(void **state) {
    (void)state;

    for (const subject_t &subject : subjects) {
        Policy policy = policy_of(subject, MINUTE_MS, 0);
        Zone *zone = make_zone_for(&policy, ZONE_BYTES);
        Debts *debts = make_debts();
        const uint64_t now_ms = 60 * MINUTE_MS;
        Claim claim = claim_of(zone, debts, &policy, 1, 10, 1);

        policy.held = 20;
        assert_int_equal(charge(claim, 15, now_ms), 0);

        Claim look = claim;
        look.cost = 0;
        acquire(&look, 1, now_ms);
        const uint64_t used = policy.used(look.describe(now_ms));

        acquire(&claim, 1, now_ms);
        assert_int_equal(claim.outcome, Outcome::kRejected);
        record_rejected(&claim, now_ms);
        acquire(&look, 1, now_ms);
        assert_int_equal(policy.used(look.describe(now_ms)), used);
        free(zone);
        free(debts);
    }
}

/* Of a log that keys have with windows of their own, only one limit is known. */
static void own_windows_record_by_their_limits(void **state) {
    Policy policy = policy_of({Algorithm::kLog, 0, false}, MINUTE_MS, 0);
    const uint64_t now_ms = 60 * MINUTE_MS;

    (void)state;

    policy.held = 20;

    const Policy own = with_window(policy, {2 * MINUTE_MS, Calendar::kNone});
    Zone *zone = make_zone_for(&policy, ZONE_BYTES);

    assert_int_equal(attempt(zone, &own, 5, 5, now_ms).outcome, Outcome::kAdmitted);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(attempt(zone, &own, 5, 1, now_ms + 10).outcome, Outcome::kRejected);
    }

    assert_int_equal(remaining_of(zone, &own, 1, 20, now_ms + 10), 10);
    free(zone);
}

/* A full zone that denies has no room for what a new key was rejected. */
static void full_zones_record_nothing(void **state) {
    Policy policy = policy_of(subjects[0], MINUTE_MS, 0);
    const uint64_t now_ms = 60 * MINUTE_MS;
    Zone *zone;

    (void)state;

    policy.full = WhenFull::kDeny;
    zone = make_zone_for(&policy, PAIR_BYTES);
    for (uint64_t key = 0; key < PAIR_SLOTS; key++) {
        assert_int_equal(acquire(zone, &policy, key + 2, 10, 1, now_ms).outcome,
                         Outcome::kAdmitted);
    }

    const Claim claim = attempt(zone, &policy, 10, 11, now_ms);
    assert_int_equal(claim.outcome, Outcome::kRejected);
    assert_int_equal(remaining_of(zone, &policy, 1, 10, now_ms), 10);
    free(zone);
}

/* A key begins anew if its newest event is damaged, and has the rejected request on record. */
static void damaged_keys_begin_anew(void **state) {
    const uint64_t now_ms = 60 * MINUTE_MS;
    unsigned damaged = 0;

    (void)state;

    for (const subject_t &subject :
         {subject_t{Algorithm::kLog, 0, false}, subject_t{Algorithm::kCounter, 60, true}}) {
        const Policy policy = policy_of(subject, MINUTE_MS, 0);
        Zone *zone = make_zone_for(&policy, ZONE_BYTES);
        auto *words = reinterpret_cast<uint64_t *>(zone);

        assert_true(admits(zone, &policy, 1, 10, 10, now_ms));
        Claim claim = acquire(zone, &policy, 1, 10, 3, now_ms);
        assert_int_equal(claim.outcome, Outcome::kRejected);

        const uint64_t tick = claim.policy->precision > 1 ? now_ms / SECOND_MS : now_ms;
        for (size_t i = kZoneAlign / sizeof(*words); i < ZONE_BYTES / sizeof(*words); i++) {
            const Event event = {words[i]};
            if (event.total() != 10 || (event.word & Event::kTickMask) != tick) { continue; }
            words[i] = 0;
            damaged++;
        }

        record_rejected(&claim, now_ms);
        assert_int_equal(remaining_of(zone, &policy, 1, 10, now_ms), 7);
        free(zone);
    }

    assert_int_equal(damaged, 2);
}

/* ---- threads ---- */

struct race_t {
    Policy policy;
    Zone *zone;
    uint32_t limit;
    uint64_t now_ms;
    std::atomic_uint admitted;

    void begin(unsigned) {
        now_ms += 3 * policy.window_ms;
        admitted = 0;
    }

    void work(unsigned thread, uint64_t *) {
        for (unsigned i = 0; i < limit; i++) {
            uint64_t at_ms = now_ms + (policy.algorithm < Algorithm::kTokenBucket ? thread % 4 : 0);

            if (attempt(zone, &policy, limit, 1, at_ms).outcome == Outcome::kAdmitted) {
                admitted++;
            }
        }
    }

    void end() {
        if (admitted != limit) {
            fail_msg("algorithm %d, precision %u: %u admitted, not %u", (int)policy.algorithm,
                     policy.precision, admitted.load(), limit);
        }
    }
};

static void threads_admit_exactly_the_limit(void **state) {
    (void)state;

    for (const subject_t &subject : subjects) {
        for (uint32_t limit : {7u, 40u}) {
            if (subject.algorithm == Algorithm::kLeakyBucket) { continue; }

            race_t race;

            race.policy = policy_of(subject, 60 * MINUTE_MS, 0);
            race.limit = limit;
            race.now_ms = 60 * MINUTE_MS * 1000;
            race.zone = make_zone_for(&race.policy, ZONE_BYTES);
            Rounds<race_t>::play(&race, 8, 100, 1);
            free(race.zone);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decides_as_attempts_tell),
        cmocka_unit_test(who_knocks_stays_out),
        cmocka_unit_test(a_cost_is_capped),
        cmocka_unit_test(a_log_takes_memory_by_its_limit),
        cmocka_unit_test(lower_limits_push_out_nothing),
        cmocka_unit_test(debtors_record_nothing),
        cmocka_unit_test(own_windows_record_by_their_limits),
        cmocka_unit_test(full_zones_record_nothing),
        cmocka_unit_test(damaged_keys_begin_anew),
        cmocka_unit_test(threads_admit_exactly_the_limit),
    };

    return cmocka_run_group_tests_name("rejected", tests, NULL, NULL);
}
