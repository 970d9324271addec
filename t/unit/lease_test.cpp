/* Copyright (C) the limit_sliding authors */

/* Leases: who may spend what until when. */

#include "leases.hpp"

#define LIMIT 1000

/* Of two coarse clocks, and rounded; how early a lease may end, therefore. */
#define TICK_MS 10
#define EARLY_MS 20

#define KEY 7
#define KEYS 40

static const told_t usual = {SERVER_MS, LIMIT, 900, 5000};

/* ---- spending ---- */

static void is_for_windows_and_for_who_consumes(void **state) {
    static const struct {
        Algorithm algorithm;
        int leased;
    } algorithms[] = {{Algorithm::kCounter, 1},
                      {Algorithm::kFixed, 1},
                      {Algorithm::kLog, 0},
                      {Algorithm::kTokenBucket, 1},
                      {Algorithm::kLeakyBucket, 0}};
    Policy policy = evicting(DAY_MS);
    Claim claim = lease_claim(&policy, KEY, 1);

    (void)state;

    for (size_t i = 0; i < LENGTH(algorithms); i++) {
        policy.algorithm = algorithms[i].algorithm;
        assert_int_equal(Leases::can_serve(policy), algorithms[i].leased);
    }

    assert_true(Leases::can_serve(claim));
    claim.purpose = Purpose::kLook;
    assert_false(Leases::can_serve(claim));
    claim.purpose = Purpose::kConsume, claim.cost = 0;
    assert_false(Leases::can_serve(claim));
}

static void needs_room_for_a_group(void **state) {
    alignas(64) static char memory[LEASES_BYTES(1)];

    (void)state;
    assert_null(Leases::init(memory, sizeof(memory) - 1));
    assert_non_null(Leases::init(memory, sizeof(memory)));
}

static void spends_what_was_added(void **state) {
    Leases *leases = make_leases(1);
    Policy policy = fixed_of(DAY_MS);
    Claim claim = lease_claim(&policy, KEY, 3);
    Claim one = lease_claim(&policy, KEY, 1);
    Claim other = lease_claim(&policy, KEY + 1, 1);
    Claim elsewhere = one;
    Verdict verdict;

    (void)state;
    elsewhere.limit++;

    assert_false(lease_spend(leases, &claim, NOW_MS));
    lease_add(leases, &claim, usual, 7, NOW_MS, NOW_MS + 1);
    assert_false(lease_spend(leases, &other, NOW_MS + 2));
    assert_false(lease_spend(leases, &elsewhere, NOW_MS + 2));

    memset(&verdict, 0xff, sizeof(verdict));
    assert_true(leases->spend(&claim, NOW_MS + 11, &verdict));
    assert_int_equal(verdict.limit, LIMIT);
    assert_int_equal(verdict.remaining, 900 + 4);
    assert_int_equal(verdict.reset_ms, 5000 - 10);
    assert_int_equal(verdict.excess, 0);
    assert_int_equal(verdict.retry_after_ms, 0);
    assert_int_equal(verdict.delay_ms, 0);

    assert_true(lease_spend(leases, &claim, NOW_MS + 2));
    assert_false(lease_spend(leases, &claim, NOW_MS + 2));
    assert_true(lease_spend(leases, &one, NOW_MS + 2));
    assert_false(lease_spend(leases, &one, NOW_MS + 2));

    free(leases);
}

static void spends_what_was_returned(void **state) {
    Leases *leases = make_leases(1);
    Policy policy = fixed_of(DAY_MS);
    Claim claim = lease_claim(&policy, KEY, 3);

    (void)state;

    lease_add(leases, &claim, usual, 3, NOW_MS, NOW_MS);
    assert_true(lease_spend(leases, &claim, NOW_MS));
    leases->give_back(claim, NOW_MS);
    assert_int_equal(lease_drain(leases, &claim, NOW_MS), 3);

    free(leases);
}

/* What was spent in one window or part is not given back to the next one. */
static void returns_to_where_it_was_spent(void **state) {
    Leases *leases = make_leases(1);
    Policy policy = fixed_of(DAY_MS);
    Claim claim = lease_claim(&policy, KEY, 1);
    told_t next = usual, changed = usual;

    (void)state;
    next.now_ms += DAY_MS;
    changed.limit++;

    lease_add(leases, &claim, usual, 1, NOW_MS, NOW_MS);
    assert_true(lease_spend(leases, &claim, NOW_MS));
    lease_add(leases, &claim, next, 5, NOW_MS + 1, NOW_MS + 1);
    leases->give_back(claim, NOW_MS + 1);
    assert_int_equal(lease_drain(leases, &claim, NOW_MS + 1), 5);

    lease_add(leases, &claim, usual, 1, NOW_MS + 2, NOW_MS + 2);
    assert_true(lease_spend(leases, &claim, NOW_MS + 2));
    lease_add(leases, &claim, changed, 5, NOW_MS + 3, NOW_MS + 3);
    leases->give_back(claim, NOW_MS + 3);
    assert_int_equal(lease_drain(leases, &claim, NOW_MS + 3), 5);

    /* in the same one it is, whoever has asked meanwhile */
    lease_add(leases, &claim, usual, 1, NOW_MS + 4, NOW_MS + 4);
    assert_true(lease_spend(leases, &claim, NOW_MS + 4));
    lease_add(leases, &claim, usual, 5, NOW_MS + 5, NOW_MS + 5);
    leases->give_back(claim, NOW_MS + 5);
    assert_int_equal(lease_drain(leases, &claim, NOW_MS + 5), 6);

    free(leases);
}

/* ---- until when ---- */

static void is_not_spent_for_long_without_asking(void **state) {
    Leases *leases = make_leases(1);
    Policy policy = fixed_of(DAY_MS);
    Claim claim = lease_claim(&policy, KEY, 1);
    uint64_t later_ms = NOW_MS + 3 * LEASE_MS;

    (void)state;

    /* from when it was asked, not from when that was answered */
    lease_add(leases, &claim, usual, 10, NOW_MS, NOW_MS + 300);
    assert_true(lease_spend(leases, &claim, NOW_MS + LEASE_MS - 1));
    assert_false(lease_spend(leases, &claim, NOW_MS + LEASE_MS));
    leases->give_back(claim, NOW_MS + LEASE_MS);

    /* another call in the same window: what is left is as good as before */
    lease_add(leases, &claim, usual, 5, later_ms, later_ms);
    assert_int_equal(lease_drain(leases, &claim, later_ms), 9 + 5);

    free(leases);
}

static void check_end(const Policy *policy, uint64_t server_ms) {
    Leases *leases = make_leases(1);
    Claim claim = lease_claim(policy, KEY, 1);
    told_t told = {server_ms, LIMIT, 900, 5000};
    uint64_t parts = policy->algorithm == Algorithm::kCounter ? parts_of(*policy, LIMIT) : 1;
    uint64_t left_ms = part_left_ms(policy->window_ms, parts, server_ms);
    uint64_t early_ms = left_ms > TICK_MS ? left_ms - TICK_MS : 0;

    lease_add(leases, &claim, told, 1000, NOW_MS, NOW_MS);

    for (uint64_t ms = early_ms; ms <= left_ms + 1; ms++) {
        assert_false(lease_spend(leases, &claim, NOW_MS + ms));
    }

    assert_false(lease_spend(leases, &claim, NOW_MS + 2 * left_ms));
    assert_false(lease_spend(leases, &claim, NOW_MS + left_ms + LEASE_MS / 2));

    if (left_ms > EARLY_MS && left_ms - EARLY_MS < LEASE_MS) {
        assert_true(lease_spend(leases, &claim, NOW_MS + left_ms - EARLY_MS));
    }

    free(leases);
}

/* Nor after the end of the part in which the server has counted it. */
static void is_not_spent_after_the_end(void **state) {
    static const uint64_t windows_ms[] = {100, 101, 333, 997, 1000, 1009};
    static const uint32_t precisions[] = {0, 1, 7, 10, 60};
    uint64_t server_ms = 1700000000123;

    (void)state;

    for (size_t i = 0; i < LENGTH(windows_ms); i++) {
        Policy policy = fixed_of(windows_ms[i]);

        for (uint64_t ms = 0; ms < windows_ms[i]; ms++) {
            check_end(&policy, server_ms + ms);
        }

        policy.algorithm = Algorithm::kCounter;

        for (size_t j = 0; j < LENGTH(precisions); j++) {
            policy.precision = precisions[j];

            for (uint64_t ms = 0; ms < windows_ms[i]; ms++) {
                check_end(&policy, server_ms + ms);
            }
        }
    }
}

/* Units of a bucket are spent in this epoch and the next, as the script has it,
 * a sixteenth of the window each. */
static void of_a_bucket_lasts_two_epochs(void **state) {
    static const uint64_t windows[] = {800, 1600, 7777, 16000, DAY_MS};

    (void)state;

    for (size_t i = 0; i < LENGTH(windows); i++) {
        Policy policy = evicting(windows[i]);
        uint64_t epoch_ms = windows[i] < 16000 ? windows[i] / 16 : 1000;
        Claim claim = lease_claim(&policy, KEY, 1);

        policy.algorithm = Algorithm::kTokenBucket;

        for (uint64_t offset = 0; offset < epoch_ms; offset += 7) {
            Leases *leases = make_leases(1);
            told_t told = usual;
            uint64_t left_ms;

            told.now_ms = SERVER_MS / epoch_ms * epoch_ms + offset;
            left_ms = 2 * epoch_ms - offset;

            if (left_ms > LEASE_MS) { left_ms = LEASE_MS; }

            lease_add(leases, &claim, told, 2, NOW_MS, NOW_MS);

            if (left_ms > EARLY_MS) {
                assert_true(lease_spend(leases, &claim, NOW_MS + left_ms - EARLY_MS));
            }

            assert_false(
                lease_spend(leases, &claim, NOW_MS + left_ms - (left_ms < LEASE_MS ? TICK_MS : 0)));
            free(leases);
        }
    }
}

static void leftovers_lapse_with_their_part(void **state) {
    static const uint32_t precisions[] = {1, 10};
    Policy policy = evicting(DAY_MS);
    Claim claim = lease_claim(&policy, KEY, 1);

    (void)state;

    for (size_t i = 0; i < LENGTH(precisions); i++) {
        Leases *leases = make_leases(1);
        uint64_t part_ms = DAY_MS / precisions[i];
        told_t told = usual;

        policy.precision = precisions[i];
        told.now_ms = PRESENT * DAY_MS;

        lease_add(leases, &claim, told, 3, NOW_MS, NOW_MS);
        told.now_ms += part_ms - 1;
        lease_add(leases, &claim, told, 0, NOW_MS, NOW_MS);
        assert_false(lease_spend(leases, &claim, NOW_MS));
        told.now_ms -= EARLY_MS;
        lease_add(leases, &claim, told, 0, NOW_MS, NOW_MS);
        assert_true(lease_spend(leases, &claim, NOW_MS));
        told.now_ms += EARLY_MS + 1;
        lease_add(leases, &claim, told, 0, NOW_MS, NOW_MS);
        assert_false(lease_spend(leases, &claim, NOW_MS));

        /* nor do they come back with the clock */
        told.now_ms -= part_ms / 2;
        lease_add(leases, &claim, told, 0, NOW_MS, NOW_MS);
        assert_false(lease_spend(leases, &claim, NOW_MS));

        free(leases);
    }
}

/* The part is that of the state, which may have fewer than the limit asks for,
 * and be yet to begin. */
static void lasts_as_long_as_the_part_of_the_state(void **state) {
    Policy policy = evicting(10000);
    Claim claim = lease_claim(&policy, KEY, 1);
    uint64_t server_ms = 1700000000000;
    Verdict verdict = {.limit = 10, .remaining = 9};

    (void)state;

    for (int64_t parts : {1, 2, 5, 28, 40}) {
        for (uint64_t ahead = 0; ahead < 2; ahead++) {
            Leases *leases = make_leases(1);
            int64_t newest = (int64_t)(server_ms * (uint64_t)parts / policy.window_ms + ahead);
            int64_t values[] = {parts, newest, 0};
            uint64_t end_ms = (uint64_t)(newest + 1) * policy.window_ms / (uint64_t)parts;
            /* so late that units are known for long enough */
            RemoteState remote = {end_ms - 200, 10, values};

            leases->add(claim, remote, verdict, 2, NOW_MS, NOW_MS);
            assert_true(lease_spend(leases, &claim, NOW_MS + 200 - EARLY_MS));
            assert_false(lease_spend(leases, &claim, NOW_MS + 200));
            free(leases);
        }
    }
}

/* Limits and what is left have no fewer digits than in Redis. */
static void holds_the_largest_limits(void **state) {
    Policy policy = fixed_of(DAY_MS);

    (void)state;

    for (uint64_t limit : {kRemoteMax, kRemoteMax - 1, uint64_t{1} << 48, uint64_t{1} << 49}) {
        Leases *leases = make_leases(1);
        Claim claim = lease_claim(&policy, KEY, 1);
        RemoteState remote = {SERVER_MS, limit, NULL};
        Verdict told = {.limit = limit, .remaining = limit - 12345, .reset_ms = 30ull * DAY_MS};
        Verdict verdict;

        claim.limit = limit;
        leases->add(claim, remote, told, 1, NOW_MS, NOW_MS);
        assert_true(leases->spend(&claim, NOW_MS + 1, &verdict));
        assert_true(verdict.limit == limit);
        assert_true(verdict.remaining == limit - 12345);
        assert_true(verdict.reset_ms == 30ull * DAY_MS - 1);

        /* another limit's owner has none of it */
        leases->add(claim, remote, told, 1, NOW_MS, NOW_MS);
        claim.limit--;
        assert_false(leases->spend(&claim, NOW_MS + 1, &verdict));
        free(leases);
    }
}

static void leftovers_lapse_with_their_limit(void **state) {
    Leases *leases = make_leases(1);
    Policy policy = fixed_of(DAY_MS);
    Claim claim = lease_claim(&policy, KEY, 1);
    told_t lower = usual;

    (void)state;
    lower.limit = LIMIT / 2;

    lease_add(leases, &claim, usual, 3, NOW_MS, NOW_MS);
    lease_add(leases, &claim, lower, 2, NOW_MS, NOW_MS);
    assert_int_equal(lease_drain(leases, &claim, NOW_MS), 2);
    lease_add(leases, &claim, usual, 0, NOW_MS, NOW_MS);
    assert_int_equal(lease_drain(leases, &claim, NOW_MS), 0);

    free(leases);
}

static void a_late_reply_undoes_nothing(void **state) {
    Leases *leases = make_leases(1);
    Policy policy = fixed_of(DAY_MS);
    Claim claim = lease_claim(&policy, KEY, 1);
    told_t next = usual, lower = usual;

    (void)state;
    next.now_ms += DAY_MS;
    lower.now_ms += DAY_MS;
    lower.limit /= 2;

    lease_add(leases, &claim, next, 5, NOW_MS, NOW_MS);
    lease_add(leases, &claim, usual, 3, NOW_MS - 10, NOW_MS);
    assert_int_equal(lease_drain(leases, &claim, NOW_MS), 5);

    lease_add(leases, &claim, lower, 5, NOW_MS + 20, NOW_MS + 20);
    lease_add(leases, &claim, next, 3, NOW_MS + 10, NOW_MS + 20);
    assert_int_equal(lease_drain(leases, &claim, NOW_MS + 20), 5);

    /* of the same part it is as good as any */
    lease_add(leases, &claim, next, 5, NOW_MS + 40, NOW_MS + 40);
    lease_add(leases, &claim, next, 3, NOW_MS + 30, NOW_MS + 40);
    assert_int_equal(lease_drain(leases, &claim, NOW_MS + 40), 8);

    free(leases);
}

/* All of a key are lost, but for those that were asked for since. */
static void forgets_a_key(void **state) {
    Leases *leases = make_leases(1);
    Policy policy = fixed_of(DAY_MS);
    Claim claim = lease_claim(&policy, KEY, 1);
    Claim elsewhere = claim;
    Claim other = lease_claim(&policy, KEY + 1, 1);

    (void)state;
    elsewhere.limit /= 2;

    lease_add(leases, &claim, usual, 3, NOW_MS, NOW_MS);
    lease_add(leases, &elsewhere, usual, 4, NOW_MS, NOW_MS);
    assert_int_equal(leases->held(claim), 3);
    assert_int_equal(leases->held(elsewhere), 4);
    assert_int_equal(leases->held(other), 0);

    leases->forget(other, NOW_MS);
    leases->forget(claim, NOW_MS - 1);
    assert_int_equal(leases->held(claim), 3);

    leases->forget(claim, NOW_MS);
    assert_int_equal(leases->held(claim), 0);
    assert_int_equal(leases->held(elsewhere), 0);
    assert_false(lease_spend(leases, &claim, NOW_MS));
    assert_false(lease_spend(leases, &elsewhere, NOW_MS));

    /* both are free at once, and for others */
    lease_add(leases, &claim, usual, 5, NOW_MS, NOW_MS);
    lease_add(leases, &other, usual, 6, NOW_MS, NOW_MS);
    assert_int_equal(lease_drain(leases, &claim, NOW_MS), 5);
    leases->forget(claim, NOW_MS);
    assert_int_equal(lease_drain(leases, &other, NOW_MS), 6);

    free(leases);
}

/* ---- whose ---- */

static void spends_for_its_own_key_only(void **state) {
    Policy policy = fixed_of(DAY_MS);
    uint64_t random = 1;
    unsigned spent_all = 0;

    (void)state;

    for (unsigned round = 0; round < 3000; round++) {
        Leases *leases = make_leases(1);
        unsigned keys = (unsigned)random_scale(&random, 2, KEYS);
        uint64_t added[KEYS] = {0}, spent[KEYS] = {0};
        uint64_t now_ms = NOW_MS;

        for (unsigned i = 0; i < 200; i++) {
            uint64_t key = random_below(&random, keys);
            uint32_t units = 1 + (uint32_t)random_below(&random, 5);
            Claim claim = lease_claim(&policy, key, units);

            now_ms += random_below(&random, LEASE_MS / 4);

            if (i % 3 == 0) {
                lease_add(leases, &claim, usual, units,
                          now_ms - random_below(&random, 2 * LEASE_MS), now_ms);
                added[key] += units;

            } else if (lease_spend(leases, &claim, now_ms)) {
                spent[key] += units;
                spent_all++;

                if (i % 5 == 0) {
                    leases->give_back(claim, now_ms);
                    spent[key] -= units;
                }
            }

            assert_in_range(spent[key], 0, added[key]);
        }

        free(leases);
    }

    assert_in_range(spent_all, 20000, UINT32_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_for_windows_and_for_who_consumes),
        cmocka_unit_test(needs_room_for_a_group),
        cmocka_unit_test(spends_what_was_added),
        cmocka_unit_test(spends_what_was_returned),
        cmocka_unit_test(returns_to_where_it_was_spent),
        cmocka_unit_test(is_not_spent_for_long_without_asking),
        cmocka_unit_test(is_not_spent_after_the_end),
        cmocka_unit_test(of_a_bucket_lasts_two_epochs),
        cmocka_unit_test(leftovers_lapse_with_their_part),
        cmocka_unit_test(lasts_as_long_as_the_part_of_the_state),
        cmocka_unit_test(holds_the_largest_limits),
        cmocka_unit_test(leftovers_lapse_with_their_limit),
        cmocka_unit_test(a_late_reply_undoes_nothing),
        cmocka_unit_test(forgets_a_key),
        cmocka_unit_test(spends_for_its_own_key_only),
    };

    return cmocka_run_group_tests_name("lease", tests, NULL, NULL);
}
