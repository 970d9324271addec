/* Copyright (C) the limit_sliding authors */

/* Claims that were decided elsewhere, or not at all, beside those that the core decides. */

#include "support.hpp"

#define NOW_MS (PRESENT * MINUTE_MS + 1)

static const Policy policies[] = {
    evicting(MINUTE_MS),
    log_of(MINUTE_MS),
    parts_of(MINUTE_MS, 4),
    {.window_ms = MINUTE_MS, .algorithm = Algorithm::kFixed},
    {.window_ms = MINUTE_MS, .algorithm = Algorithm::kTokenBucket},
};

/* A claim that Redis has decided, with so many of 100 requests left. */
static Claim decided(const Policy *policy, const Verdict *verdict) {
    Claim claim = {};

    claim.policy = policy;
    claim.limit = 100;
    claim.cost = 1;

    claim.decide(Standing::kGiven,
                 verdict->retry_after_ms == 0 ? Outcome::kAdmitted : Outcome::kRejected, *verdict);

    return claim;
}

static Claim of_zone(Zone *zone, const Policy *policy, uint32_t cost) {
    return claim_of(zone, policy, 1, 100, cost);
}

static void a_verdict_is_told_as_it_is(void **state) {
    const Verdict verdict = {100, 7, 0, 11, 0, 13};
    const Verdict refusal = {100, 0, 1000, 11, 17, 0};

    (void)state;

    for (const Policy &policy : policies) {
        Claim claims[] = {decided(&policy, &verdict)};
        Claim refused[] = {decided(&policy, &refusal)};

        assert_int_equal(acquire(claims, 1, NOW_MS), 0);
        assert_int_equal(claims[0].outcome, Outcome::kAdmitted);

        Verdict told = claims[0].describe(NOW_MS);
        assert_memory_equal(&told, &verdict, sizeof(verdict));
        assert_int_equal(claims[0].retry_after_ms(NOW_MS), 0);
        assert_int_equal(claims[0].delay_ms(NOW_MS), 13);

        assert_int_equal(acquire(refused, 1, NOW_MS), 0);
        assert_int_equal(refused[0].outcome, Outcome::kRejected);
        assert_int_equal(refused[0].retry_after_ms(NOW_MS), 17);
    }
}

/* One that rejects elsewhere lets nothing be consumed here; one that admits is left as it
 * is when another rejects. */
static void all_or_nothing(void **state) {
    const Verdict verdict = {100, 50, 0, 11, 0, 0};
    const Verdict refusal = {100, 0, 1000, 11, 17, 0};

    (void)state;

    for (const Policy &policy : policies) {
        Zone *zone = make_zone_for(&policy, kZoneAlign + 64 * 1024);
        Claim refused[] = {of_zone(zone, &policy, 1), decided(&policy, &refusal)};

        assert_int_equal(acquire(refused, 2, NOW_MS), 1);
        assert_int_equal(remaining_of(zone, &policy, 1, 100, NOW_MS), 100);

        /* the tightest is told: half of a limit, or three quarters */
        Claim both[] = {decided(&policy, &verdict), of_zone(zone, &policy, 25)};
        assert_int_equal(acquire(both, 2, NOW_MS), 0);
        both[1] = of_zone(zone, &policy, 50);
        assert_int_equal(acquire(both, 2, NOW_MS), 1);
        assert_int_equal(remaining_of(zone, &policy, 1, 100, NOW_MS), 25);

        both[1] = of_zone(zone, &policy, 50);
        assert_int_equal(acquire(both, 2, NOW_MS), 1);
        assert_int_equal(both[0].outcome, Outcome::kAdmitted);
        assert_int_equal(both[1].outcome, Outcome::kRejected);
        release(both, 2, NOW_MS);
        assert_int_equal(both[0].purpose, Purpose::kConsume);
        free(zone);
    }
}

/* The claim that describes a request is the one it waits for the longest, if any rejects. */
static void describes_who_rejects(void **state) {
    const Verdict verdict = {100, 50, 0, 11, 0, 0};
    const Verdict tighter = {100, 10, 0, 11, 0, 0};
    const Verdict soon = {100, 0, 1000, 11, 17, 0};
    const Verdict later = {100, 0, 1000, 11, 19, 0};
    const Policy *policy = &policies[0];
    Claim claims[]
        = {decided(policy, &verdict), decided(policy, &tighter), decided(policy, &verdict)};

    (void)state;

    assert_int_equal(describing(claims, 3, NOW_MS), 1);

    claims[0] = decided(policy, &soon);
    claims[2] = decided(policy, &later);
    assert_int_equal(describing(claims, 3, NOW_MS), 2);

    /* nobody was asked about this one */
    claims[2].outcome = Outcome::kUndecided;
    assert_int_equal(describing(claims, 3, NOW_MS), 0);
}

/* The share of a bucket is of its burst, and not of its limit. */
static void a_bucket_has_a_share_of_its_burst(void **state) {
    const Policy small
        = {.window_ms = MINUTE_MS, .algorithm = Algorithm::kTokenBucket, .burst = 10};
    const Policy large
        = {.window_ms = MINUTE_MS, .algorithm = Algorithm::kTokenBucket, .burst = 900};
    const Verdict half = {100, 50, 0, 11, 0, 0};
    const Verdict small_quarter = {100, 7, 0, 11, 0, 0};
    const Verdict large_most = {100, 200, 0, 11, 0, 0};

    (void)state;

    Claim claims[] = {decided(&small, &small_quarter), decided(&policies[0], &half)};
    assert_int_equal(describing(claims, 2, NOW_MS), 1);

    claims[0] = decided(&large, &large_most);
    assert_int_equal(describing(claims, 2, NOW_MS), 0);
}

/* A key that owes under one limit, and has room under another, has used its share. */
static void who_owes_has_a_share(void **state) {
    const Verdict verdict = {100, 75, 0, 11, 0, 0};

    (void)state;

    for (const Policy &policy : policies) {
        Zone *zone = make_zone_for(&policy, kZoneAlign + 64 * 1024);

        Debts *debts = make_debts();

        charge(claim_of(zone, debts, &policy, 1, 10, 0), 30, NOW_MS);

        Claim claims[] = {decided(&policy, &verdict), of_zone(zone, &policy, 0)};
        claims[1].purpose = Purpose::kLook;
        claims[1].debts = debts;
        assert_int_equal(acquire(claims, 2, NOW_MS), 1);

        claims[1].limit = 1000;
        assert_int_equal(acquire(claims, 2, NOW_MS), 0);
        free(zone);
        free(debts);
    }
}

/* A key that owes, and has room, consumes once, and only if no other claim rejects. */
static void who_owes_consumes_once(void **state) {
    const Verdict refusal = {100, 0, 1000, 11, 17, 0};

    (void)state;

    for (const Policy &policy : policies) {
        Zone *zone = make_zone_for(&policy, kZoneAlign + 64 * 1024);
        Debts *debts = make_debts();
        Claim debtor = claim_of(zone, debts, &policy, 1, 100, 10);
        charge(claim_of(zone, debts, &policy, 1, 10, 0), 30, NOW_MS);

        Claim other = claim_of(zone, debts, &policy, 2, 5, 6);
        Claim rejected[] = {debtor, other};
        assert_int_equal(acquire(rejected, 2, NOW_MS), 1);

        Claim refused[] = {debtor, decided(&policy, &refusal)};
        assert_int_equal(acquire(refused, 2, NOW_MS), 1);

        Claim look = debtor;
        look.purpose = Purpose::kLook;
        look.cost = 0;
        acquire(&look, 1, NOW_MS);
        assert_int_equal(look.describe(NOW_MS).remaining, 70);

        other.cost = 1;
        Claim admitted[] = {debtor, other};
        acquire(admitted, 2, NOW_MS);
        assert_int_equal(admitted[0].outcome, Outcome::kAdmitted);
        assert_int_equal(admitted[0].describe(NOW_MS).remaining, 60);
        free(zone);
        free(debts);
    }
}

/* The wait of a rejection by events, or of a debtor, is that of its description, even if others
 * have given back the units before; that of any other one is computed if it is not known. */
static void waits_as_it_was_described(void **state) {
    (void)state;

    for (const Policy &policy : policies) {
        Zone *zone = make_zone_for(&policy, kZoneAlign + 64 * 1024);
        assert_true(admits(zone, &policy, 1, 100, 100, NOW_MS));

        Claim claim = acquire(zone, &policy, 1, 100, 1, NOW_MS);
        assert_int_equal(claim.outcome, Outcome::kRejected);
        const uint64_t wait_ms = claim.retry_after_ms(NOW_MS);
        assert_in_range(wait_ms, 1, 2 * MINUTE_MS);

        claim.rejection.retry_after_ms = 0;
        assert_int_equal(claim.retry_after_ms(NOW_MS), policy.has_rings() ? 0 : wait_ms);
        claim.standing = Standing::kOwing;
        assert_int_equal(claim.retry_after_ms(NOW_MS), 0);
        free(zone);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_verdict_is_told_as_it_is),
        cmocka_unit_test(all_or_nothing),
        cmocka_unit_test(describes_who_rejects),
        cmocka_unit_test(a_bucket_has_a_share_of_its_burst),
        cmocka_unit_test(who_owes_has_a_share),
        cmocka_unit_test(who_owes_consumes_once),
        cmocka_unit_test(waits_as_it_was_described),
    };

    return cmocka_run_group_tests_name("decided", tests, NULL, NULL);
}
