/* Copyright (C) the limit_sliding authors */

/* Units that requests in flight hold, by one process. */

#include "holds.hpp"

#include "core/rules/in_flight.hpp"

#define KEY 1
#define START_MS 1000

static Zone *zone;
static Ledger *ledger;
static Holdings one, two;

static void begin_bytes(size_t zone_bytes, size_t ledger_bytes) {
    void *memory = aligned_alloc(64, ledger_bytes);

    assert_non_null(memory);
    memset(memory, 0, ledger_bytes);
    zone = make_zone_for(&holding, zone_bytes);
    ledger = Ledger::init(memory, ledger_bytes);
    one = holdings_of(zone, ledger, 0);
    two = holdings_of(zone, ledger, 1);
}

static void begin() { begin_bytes(PAIR_BYTES, LEDGER_BYTES); }

static void end() {
    free(ledger);
    free(zone);
}

static void admits_up_to_the_limit(void **) {
    Hold holds[4];

    begin();

    for (unsigned i = 0; i < 3; i++) {
        assert_true(takes(i % 2 ? &two : &one, zone, &holds[i], KEY, 3));
        assert_int_equal(held_of(zone, KEY), i + 1);
    }

    assert_false(takes(&one, zone, &holds[3], KEY, 3));
    assert_false(takes(&two, zone, &holds[3], KEY, 3));
    assert_false(holds[3].is_held());

    holds[1].release();
    assert_true(takes(&one, zone, &holds[3], KEY, 3));
    assert_false(takes(&one, zone, &holds[1], KEY, 3));

    for (unsigned i = 0; i < 4; i++) {
        holds[i].release();
        holds[i].release(); /* once is enough */
    }

    assert_int_equal(held_of(zone, KEY), 0);
    assert_int_equal(count_of(zone, &holding, 1), 0);
    assert_int_equal(ledger->sums(nullptr, 1).requests, 0);
    end();
}

static void tells_what_a_client_sees(void **) {
    Hold holds[2];
    Claim claim;
    Verdict verdict;

    begin();
    holds[0] = {&one};
    claim = hold_claim(zone, &holds[0], KEY, 10, 4);
    limit_sliding::acquire(&claim, 1, 1);
    verdict = claim.describe(1);
    assert_int_equal(verdict.limit, 10);
    assert_int_equal(verdict.remaining, 6);

    holds[1] = {&one};
    claim = hold_claim(zone, &holds[1], KEY, 10, 7);
    limit_sliding::acquire(&claim, 1, 1);
    verdict = claim.describe(1);
    assert_int_equal(claim.outcome, Outcome::kRejected);
    assert_int_equal(verdict.remaining, 6);
    assert_int_equal(verdict.excess, 1000);
    assert_true(claim.retry_after_ms(1) == kNever);
    assert_true(verdict.retry_after_ms == kNever);
    end();
}

static void weighs_costs(void **) {
    Hold holds[3];

    begin();
    assert_true(takes(&one, zone, &holds[0], KEY, LIMIT_MAX, LIMIT_MAX - 1));
    assert_false(takes(&one, zone, &holds[1], KEY, LIMIT_MAX, 2));
    assert_false(takes(&one, zone, &holds[1], KEY, LIMIT_MAX, UINT32_MAX));
    assert_true(takes(&one, zone, &holds[1], KEY, LIMIT_MAX, 0));
    assert_false(holds[1].is_held());
    assert_true(takes(&one, zone, &holds[1], KEY, LIMIT_MAX, 1));
    assert_true(takes(&one, zone, &holds[2], KEY, LIMIT_MAX, 0));

    /* a lower limit applies at once */
    assert_false(takes(&one, zone, &holds[2], KEY, 5, 0));
    holds[0].release();
    assert_true(takes(&one, zone, &holds[2], KEY, 5, 4));
    assert_int_equal(held_of(zone, KEY), 5);
    end();
}

/* A request that another limit rejects holds nothing. */
static void holds_all_or_nothing(void **) {
    Policy rate = evicting(MINUTE_MS);
    Zone *rates = make_zone_for(&rate, PAIR_BYTES);

    begin();

    for (unsigned i = 0; i < 3; i++) {
        Hold holds[2] = {{&one}, {&one}};
        Claim claims[] = {hold_claim(zone, &holds[0], KEY, 1, 1), claim_of(rates, &rate, KEY, 2, 1),
                          hold_claim(zone, &holds[1], KEY + 1, 5, 1)};

        size_t told = limit_sliding::acquire(claims, 3, PRESENT * MINUTE_MS);
        int admitted = claims[told].outcome == Outcome::kAdmitted;

        assert_int_equal(admitted, i < 2);
        assert_int_equal(told, i < 2 ? 0 : 1);
        assert_int_equal(holds[0].is_held(), admitted);
        assert_int_equal(held_of(zone, KEY + 1), admitted);

        /* one that has consumed when another was faster, as release() of a later refusal */
        if (i == 1) { release(claims, 3, PRESENT * MINUTE_MS); }

        holds[0].release();
        holds[1].release();
        assert_int_equal(held_of(zone, KEY), 0);
        assert_int_equal(held_of(zone, KEY + 1), 0);

        if (i == 1) { assert_true(admits(rates, &rate, KEY, 2, 1, PRESENT * MINUTE_MS)); }
    }

    free(rates);
    end();
}

static void refuses_when_the_ledger_is_full(void **) {
    Hold holds[LEDGER_ENTRIES];
    Hold more;

    begin_bytes(MEGABYTE_ZONE_BYTES, LEDGER_BYTES);
    assert_int_equal(ledger->capacity(), LEDGER_ENTRIES);

    for (unsigned i = 0; i < LEDGER_ENTRIES; i++) {
        assert_true(takes(i < 20 ? &one : &two, zone, &holds[i], i < 20 ? KEY : i, 100));
    }

    assert_false(takes(&two, zone, &more, KEY, 100));
    assert_true(more.no_entry);
    assert_false(takes(&one, zone, &more, KEY, 100));
    assert_int_equal(held_of(zone, KEY), 20);
    assert_int_equal(stats_of(zone).refused, 2);

    holds[0].release();
    assert_true(takes(&one, zone, &more, KEY, 100));
    assert_int_equal(ledger->sums(nullptr, 2).requests, LEDGER_ENTRIES);

    /* a search that has found no entry is not repeated within its ms */
    one.recover(1);
    assert_false(takes(&one, zone, &more, KEY, 100, 1, 1));
    assert_true(more.no_entry);
    assert_true(takes(&one, zone, &more, KEY, 100, 1, 2));
    end();
}

/* A worker that had many requests keeps few entries beside those of the requests that are left,
 * wherever in the ledger these are. */
static void leaves_unused_entries_to_others(void **) {
    constexpr unsigned kMany = 200, kLeft = (kMany + 15) / 16, kKept = 16;
    Hold holds[kMany];
    Hold more;
    unsigned n = 0;

    begin_bytes(MEGABYTE_ZONE_BYTES, 4 * LEDGER_BYTES);

    for (Hold &hold : holds) {
        assert_true(takes(&one, zone, &hold, KEY, 1000));
    }

    for (unsigned i = 0; i < kMany; i++) {
        if (i % 16 != 0) { holds[i].release(); }
    }

    one.tidy();

    while (takes(&two, zone, &more, KEY, 1000)) {
        n++;
    }

    assert_int_equal(n, ledger->capacity() - kLeft - kKept);
    assert_int_equal(held_of(zone, KEY), n + kLeft);

    two.recover(0);
    assert_int_equal(held_of(zone, KEY), n);
    end();
}

/* Keys that hold units are never evicted; those at rest leave their slots to others. */
static void never_evicts_what_is_held(void **) {
    Hold holds[PAIR_SLOTS + 1];

    begin();

    for (unsigned key = 0; key < PAIR_SLOTS; key++) {
        assert_true(takes(&one, zone, &holds[key], key, 1));
    }

    /* full=evict and full=deny are the same */
    for (WhenFull full : {WhenFull::kEvict, WhenFull::kDeny}) {
        Hold refused = {&one};
        Claim claim = hold_claim(zone, &refused, PAIR_SLOTS, 1, 1);
        Policy policy = holding;
        policy.full = full;
        claim.policy = &policy;
        limit_sliding::acquire(&claim, 1, 1);
        assert_int_equal(claim.outcome, Outcome::kRefused);
        assert_false(refused.no_entry);
        assert_false(refused.is_held());
        assert_true(claim.retry_after_ms(1) == kNever);
        assert_int_equal(stats_of(zone).evicted, 0);
    }

    assert_int_equal(stats_of(zone).refused, 2);

    /* all lines are read, or one stands for all */
    assert_int_equal(zone->keys(holding, 1, 1, 100, UINT64_MAX), PAIR_SLOTS);
    assert_int_equal(zone->keys(holding, 1, 1, 100, Line::kSlots * zone->slot_bytes), 100);

    holds[3].release();
    assert_true(takes(&one, zone, &holds[3], PAIR_SLOTS, 1));
    assert_false(takes(&one, zone, &holds[PAIR_SLOTS], 0, 1));
    assert_int_equal(stats_of(zone).evicted, 0);
    end();
}

/* Nobody knows when a request will end, so neither a state nor a rejection has an end. */
static void has_no_end(void **) {
    const InFlight rule(holding, 0, 3);
    const State two = InFlight::make(2, 0);

    assert_true(rule.expires_ms(two) == kNever);
    assert_int_equal(rule.expires_ms(InFlight::make(0, 7)), 0);
    assert_int_equal(rule.retry_after_ms(two, 1), 0);
    assert_true(rule.retry_after_ms(two, 2) == kNever);
}

/* A stream counts for as long as it takes; its age is told in s. */
static void holds_for_days(void **) {
    Hold stream, hold;
    uint64_t now_ms = START_MS;

    begin();
    assert_true(takes(&one, zone, &stream, KEY, 1, 1, now_ms));

    for (unsigned days = 0; days < 60; days++, now_ms += DAY_MS) {
        uint64_t hash = zone->hash({"other", 5});

        assert_false(takes(&two, zone, &hold, KEY, 1, 1, now_ms));
        zone->sweep(holding, now_ms, 1, 0, UINT64_MAX);
        assert_int_equal(ledger->sums(nullptr, now_ms).longest_s, days * 24 * 60 * 60);
        assert_int_equal(ledger->sums(&hash, now_ms).requests, 0);
    }

    /* another worker's clock is behind */
    assert_int_equal(ledger->sums(nullptr, 0).longest_s, 0);
    stream.release();
    assert_true(takes(&two, zone, &hold, KEY, 1, 1, now_ms));
    end();
}

static void recovers_what_the_dead_held(void **) {
    Hold holds[40];

    begin();

    for (unsigned i = 0; i < 40; i++) {
        assert_true(takes(i % 2 ? &one : &two, zone, &holds[i], i % 4, 100, i % 3 + 1));
    }

    for (unsigned i = 1; i < 40; i += 2) {
        holds[i].release();
        takes(&one, zone, &holds[i], i % 4, 100, 2);
    }

    two.recover(0);
    assert_int_equal(held_of(zone, 1), 0);
    assert_int_equal(held_of(zone, 3), 0);
    assert_int_not_equal(held_of(zone, 0), 0);
    assert_false(ledger->is_used(0));
    assert_true(ledger->is_used(1));

    uint64_t rest = held_of(zone, 0) + held_of(zone, 2);
    assert_int_equal(ledger->sums(nullptr, 1).units, rest);

    /* its entries are free again */
    for (unsigned i = 0; i < 20; i++) {
        assert_true(takes(&two, zone, &holds[1], 7, 100, 1, 5));
    }

    one.recover(1);
    one.recover(1);
    assert_int_equal(ledger->sums(nullptr, 1).requests, 0);
    assert_int_equal(count_of(zone, &holding, 1), 0);
    end();
}

/* Many requests in a random order, of several workers that die now and then. */
static void never_miscounts(void **) {
    static Hold holds[3][64];
    uint64_t expected[5] = {0};
    uint32_t cost_of[3][64];
    uint64_t key_of[3][64];
    uint64_t random = 1;

    begin_bytes(PAIR_BYTES, 4 * LEDGER_BYTES);
    memset((void *)holds, 0, sizeof(holds));
    Holdings workers[3] = {one, two, holdings_of(zone, ledger, 2)};

    for (unsigned i = 0; i < draws(300000); i++) {
        random = random * 6364136223846793005 + 1442695040888963407;

        unsigned w = random >> 33 & 1 ? 0 : 1 + (random >> 34 & 1);
        unsigned n = random >> 36 & 63;
        Hold *hold = &holds[w][n];

        if (i % 1000 == 7) {
            workers[(w + 1) % 3].recover(w);
            workers[w] = holdings_of(zone, ledger, w);

            for (unsigned j = 0; j < 64; j++) {
                if (holds[w][j].is_held()) { expected[key_of[w][j]] -= cost_of[w][j]; }
                holds[w][j] = {&workers[w]};
            }
        } else if (hold->is_held()) {
            expected[key_of[w][n]] -= cost_of[w][n];
            hold->release();
        } else {
            uint64_t key = (random >> 43) % 5;
            uint32_t cost = 1 + (random >> 50) % 3;

            int fits = expected[key] + cost <= 20;
            int taken = takes(&workers[w], zone, hold, key, 20, cost, i);
            assert_true(taken == fits || hold->no_entry);
            key_of[w][n] = key;
            cost_of[w][n] = cost;
            expected[key] += taken ? cost : 0;
        }

        if (i % 100 == 0) { workers[w].tidy(); }

        for (unsigned key = 0; key < 5 && i % 16 == 0; key++) {
            assert_int_equal(held_of(zone, key), expected[key]);
        }
    }

    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(admits_up_to_the_limit),
        cmocka_unit_test(tells_what_a_client_sees),
        cmocka_unit_test(weighs_costs),
        cmocka_unit_test(holds_all_or_nothing),
        cmocka_unit_test(refuses_when_the_ledger_is_full),
        cmocka_unit_test(leaves_unused_entries_to_others),
        cmocka_unit_test(never_evicts_what_is_held),
        cmocka_unit_test(has_no_end),
        cmocka_unit_test(holds_for_days),
        cmocka_unit_test(recovers_what_the_dead_held),
        cmocka_unit_test(never_miscounts),
    };

    return cmocka_run_group_tests_name("units in flight", tests, NULL, NULL);
}
