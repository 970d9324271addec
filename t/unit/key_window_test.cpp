/* Copyright (C) the limit_sliding authors */

/*
 * Keys with windows of their own, in a zone that has another: each is decided as
 * in a zone of that window, whatever keys share its lines, and is given up for
 * others as those of the zone's window are.  SEED=n in the environment runs other
 * histories.
 */

#include <stdio.h>

#include "core/policy/override.hpp"
#include "support.hpp"

#define HOUR_MS (60ull * MINUTE_MS)
#define NOW_MS (PRESENT * DAY_MS + 12345)

static const struct {
    const char *name;
    Policy policy;
} kinds[] = {
    {"counter", {MINUTE_MS, Algorithm::kCounter}},
    {"counter precision=1", {MINUTE_MS, Algorithm::kCounter, WhenFull::kEvict, 1}},
    {"counter strict", {MINUTE_MS, Algorithm::kCounter, WhenFull::kEvict, 0, 0, true}},
    {"counter precision=10", {MINUTE_MS, Algorithm::kCounter, WhenFull::kEvict, 10}},
    {"counter precision=7 strict", {MINUTE_MS, Algorithm::kCounter, WhenFull::kEvict, 7, 0, true}},
    {"log", {MINUTE_MS, Algorithm::kLog}},
    {"fixed", {MINUTE_MS, Algorithm::kFixed}},
    {"token_bucket", {MINUTE_MS, Algorithm::kTokenBucket}},
    {"token_bucket burst", {MINUTE_MS, Algorithm::kTokenBucket, WhenFull::kEvict, 0, 200}},
    {"leaky_bucket", {MINUTE_MS, Algorithm::kLeakyBucket}},
    {"leaky_bucket burst", {MINUTE_MS, Algorithm::kLeakyBucket, WhenFull::kEvict, 0, 60}},
};

static const uint64_t windows_ms[]
    = {kWindowMinMs,         777,         SECOND_MS, 10 * SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS,
       7 * (uint64_t)DAY_MS, kWindowMaxMs};

static Policy of_zone(size_t kind, uint64_t window_ms, WhenFull full) {
    Policy policy = kinds[kind].policy;

    policy.window_ms = window_ms;
    policy.full = full;

    return policy;
}

static Policy own(const Policy &policy, uint64_t window_ms) {
    return with_window(policy, {window_ms, Calendar::kNone});
}

static uint64_t used_by(Zone *zone, const Policy &policy, uint64_t key, uint64_t limit,
                        uint64_t now_ms) {
    Claim claim = claim_of(zone, &policy, key, limit, 0);

    limit_sliding::acquire(&claim, 1, now_ms);

    return policy.used(claim.describe(now_ms));
}

static size_t slots_of(const Policy &policy) { return policy.has_rings() ? 128 : 16; }

static Zone *zone_of_pairs(const Policy &policy, size_t pairs) {
    size_t slot_bytes = slots_of(policy);

    /* a ring of 60 parts takes 512 bytes, of 10 or 7 it takes 128 */
    return make_zone_for(&policy, kZoneAlign + pairs * PAIR_SLOTS * slot_bytes);
}

/* ---- the same decisions as in a zone of that window ---- */

#define KEYS 3
#define STEPS 1500

/* The same keys in two zones: `mixed` has another window, and other keys; in
 * `alone` are only they, and its window is theirs. */
struct twins_t {
    size_t kind;
    uint64_t seed;
    uint64_t random;
    unsigned step;
    Policy shared; /* of `mixed` */
    Policy own;
    Policy plain; /* of `alone` */
    Zone *mixed;
    Zone *alone;
    bool is_alone; /* there is one key, and clocks of workers are behind at times; else
                      a slot may go to another key before it is over by all clocks */
    uint64_t now_ms;
    uint64_t limit;
    Claim last[KEYS][2]; /* admitted in both */
    uint64_t last_ms[KEYS];
    uint64_t refused; /* times that a key had no place */
    uint64_t charged;
};

#define CHECK(t, condition)                                                                        \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fail_msg("%s, own window %llu in %llu, SEED=%llu, step %u: %s", kinds[(t)->kind].name, \
                     (unsigned long long)(t)->own.window_ms,                                       \
                     (unsigned long long)(t)->shared.window_ms, (unsigned long long)(t)->seed,     \
                     (t)->step, #condition);                                                       \
        }                                                                                          \
    } while (0)

static Claim claim_in_mixed(twins_t *t, uint64_t key, uint64_t cost) {
    return claim_of(t->mixed, &t->own, key, t->limit, cost);
}

static Claim claim_alone(twins_t *t, uint64_t key, uint64_t cost) {
    return claim_of(t->alone, &t->plain, key, t->limit, cost);
}

/* Neither zone knows the key any more. */
static void forget(twins_t *t, uint64_t key) {
    claim_in_mixed(t, key, 1).forget(t->now_ms);
    claim_alone(t, key, 1).forget(t->now_ms);
    t->last_ms[key] = 0;
}

static void check_same_verdicts(twins_t *t, const Claim &a, const Claim &b) {
    Verdict v = a.describe(t->now_ms);
    Verdict w = b.describe(t->now_ms);

    CHECK(t, a.outcome == b.outcome);
    CHECK(t, v.limit == w.limit);
    CHECK(t, v.remaining == w.remaining);
    CHECK(t, v.excess == w.excess);
    CHECK(t, v.reset_ms == w.reset_ms);
    CHECK(t, v.retry_after_ms == w.retry_after_ms);
    CHECK(t, v.delay_ms == w.delay_ms);
    CHECK(t, a.retry_after_ms(t->now_ms) == b.retry_after_ms(t->now_ms));
}

static void decide_twins(twins_t *t, uint64_t key, uint64_t cost, Purpose purpose) {
    Claim a = claim_in_mixed(t, key, cost);
    Claim b = claim_alone(t, key, cost);
    uint64_t refused = stats_of(t->mixed).refused;

    a.purpose = purpose;
    b.purpose = purpose;
    limit_sliding::acquire(&a, 1, t->now_ms);

    if (stats_of(t->mixed).refused != refused) {
        t->refused++;
        forget(t, key);
        return;
    }

    limit_sliding::acquire(&b, 1, t->now_ms);
    check_same_verdicts(t, a, b);

    if (a.outcome == Outcome::kAdmitted && purpose == Purpose::kConsume && cost != 0) {
        t->last[key][0] = a;
        t->last[key][1] = b;
        t->last_ms[key] = t->now_ms;
    }
}

static void charge_twins(twins_t *t, uint64_t key, uint64_t cost) {
    uint64_t refused = stats_of(t->mixed).refused;
    uint64_t lost = charge(claim_in_mixed(t, key, 1), cost, t->now_ms);

    if (stats_of(t->mixed).refused != refused) {
        t->refused++;
        forget(t, key);
        return;
    }

    t->charged++;
    CHECK(t, lost == charge(claim_alone(t, key, 1), cost, t->now_ms));
}

static void settle_twins(twins_t *t, uint64_t key) {
    uint64_t limit = t->limit;
    uint64_t refused = stats_of(t->mixed).refused;

    switch (random_below(&t->random, 6)) {
    case 0:
    case 1:
        charge_twins(t, key, random_below(&t->random, limit) + 1);
        return;
    case 2:
        charge_twins(t, key, random_below(&t->random, 30 * limit) + 1);
        return;
    case 3: {
        uint64_t cost = random_below(&t->random, 2 * limit) + 1;

        give_back(claim_in_mixed(t, key, 1), cost, t->now_ms);
        give_back(claim_alone(t, key, 1), cost, t->now_ms);
        break;
    }
    case 4:
        if (t->last_ms[key] == 0) { return; }

        for (unsigned i = 0; i < 2; i++) {
            refund(t->last[key][i], t->last[key][i].cost, t->last_ms[key], t->now_ms);
        }

        t->last_ms[key] = 0;
        break;
    default:
        if (random_below(&t->random, 8) == 0) { forget(t, key); }
    }

    /* Refunds of a ring may have no place.  A key that has used nothing any more, but
     * whose time is ahead, is over, and need not be kept. */
    if (stats_of(t->mixed).refused != refused
        || used_by(t->alone, t->plain, key, t->limit, t->now_ms) == 0) {
        forget(t, key);
    }
}

/* Keys of the zone's window, and of others, that come and go. */
static void disturb(twins_t *t) {
    Policy other = own(t->shared, windows_ms[random_below(&t->random, LENGTH(windows_ms))]);
    uint64_t key = 1000 + random_below(&t->random, 1000);
    bool is_shared = random_below(&t->random, 3) == 0;
    const Policy &policy = is_shared ? t->shared : other;

    if (!is_shared && other.window_ms == t->own.window_ms) { key += 1000; }

    admits(t->mixed, &policy, key, t->limit, random_below(&t->random, t->limit) + 1, t->now_ms);

    if (random_below(&t->random, 16) == 0) {
        charge(claim_of(t->mixed, &policy, key, t->limit, 1), t->limit * 3, t->now_ms);
    }
}

static void pass_time(twins_t *t) {
    uint64_t w = t->own.window_ms;

    switch (random_below(&t->random, 40)) {
    case 0:
        t->now_ms += random_below(&t->random, 3 * w);
        break;
    case 1:
        t->now_ms += random_below(&t->random, 40) * w + random_below(&t->random, w);
        break;
    case 2:
        t->now_ms += random_below(&t->random, 3 * t->shared.window_ms);
        break;
    case 3:
        if (random_below(&t->random, 8) == 0) { t->now_ms += random_below(&t->random, 3000) * w; }
        break;
    case 4:
    case 5:
        if (t->is_alone) { t->now_ms -= random_below(&t->random, 50); }
        break;
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
    case 11:
    case 12:
    case 13:
        break;
    default:
        t->now_ms += random_below(&t->random, w / 16 + 1);
    }
}

static void check_history(size_t kind, const Window &shared, const Window &own, uint64_t seed,
                          uint64_t *refused) {
    twins_t t = {};

    t.kind = kind;
    t.seed = seed;
    t.random = seed;
    t.shared = of_zone(kind, shared.ms, WhenFull::kDeny);
    t.shared.calendar = shared.calendar;
    t.own = with_window(t.shared, own);
    t.plain = of_zone(kind, own.ms, WhenFull::kEvict);
    t.plain.calendar = own.calendar;
    t.mixed = zone_of_pairs(t.shared, 1u << random_below(&t.random, 4));
    t.alone = zone_of_pairs(t.plain, 64);
    t.now_ms = NOW_MS + random_below(&t.random, 10 * own.ms);
    t.is_alone = random_below(&t.random, 4) == 0;
    t.limit = random_scale(&t.random, 1, 2000);

    for (t.step = 0; t.step < STEPS; t.step++) {
        uint64_t key = t.is_alone ? 0 : random_below(&t.random, KEYS);
        uint64_t cost = random_below(&t.random, t.limit / 4 + 2);

        pass_time(&t);

        switch (random_below(&t.random, 8)) {
        case 0:
        case 1:
            if (!t.is_alone) { disturb(&t); }
            break;
        case 2:
            decide_twins(&t, key, cost, Purpose::kLook);
            break;
        case 3:
            settle_twins(&t, key);
            break;
        default:
            decide_twins(&t, key, cost, Purpose::kConsume);
        }
    }

    CHECK(&t, stats_of(t.alone).evicted == 0);
    *refused += t.refused;
    free(t.mixed);
    free(t.alone);
}

static uint64_t first_seed(void) {
    const char *seed = getenv("SEED");

    return seed != NULL ? strtoull(seed, NULL, 10) : 1;
}

/* In a zone that denies, so nothing that counts may give way to other keys. */
static void check_histories(size_t kind, const Window *windows, size_t n) {
    uint64_t seed = first_seed() + 1000 * kind;
    uint64_t refused = 0;

    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            if (i != j) { check_history(kind, windows[i], windows[j], seed++, &refused); }
        }
    }

    /* there was some need for the places of keys that were over */
    assert_true(refused > 10);
}

static void test_own_windows_are_decided_as_those_of_a_zone(void **state) {
    Window windows[LENGTH(windows_ms)];

    (void)state;

    for (size_t i = 0; i < LENGTH(windows_ms); i++) {
        windows[i] = {windows_ms[i], Calendar::kNone};
    }

    for (size_t kind = 0; kind < LENGTH(kinds); kind++) {
        check_histories(kind, windows, LENGTH(windows));
    }
}

static void test_windows_of_a_calendar(void **state) {
    static const Window windows[]
        = {{SECOND_MS, Calendar::kNone}, {DAY_MS, Calendar::kNone},    Window::of(Calendar::kDay),
           Window::of(Calendar::kWeek),  Window::of(Calendar::kMonth), Window::of(Calendar::kYear)};

    (void)state;

    for (size_t kind = 0; kind < LENGTH(kinds); kind++) {
        if (kinds[kind].policy.algorithm == Algorithm::kFixed) {
            check_histories(kind, windows, LENGTH(windows));
        }
    }
}

/* ---- which keys are given up ---- */

/* Has keys from `first` on use something once. */
static void use(Zone *zone, const Policy &policy, uint64_t first, uint64_t keys, uint64_t cost,
                uint64_t now_ms, uint64_t limit = 100) {
    for (uint64_t key = first; key < first + keys; key++) {
        assert_true(admits(zone, &policy, key, limit, cost, now_ms));
    }
}

/* Keys that are over give way to new ones, before any that is not. */
static void check_over_goes_first(const Policy &zone_policy, const Policy &over,
                                  const Policy &live) {
    Zone *zone = zone_of_pairs(zone_policy, 1);
    uint64_t heavy = over.capacity(100);
    uint64_t later_ms = NOW_MS + 2 * HOUR_MS;

    use(zone, over, 0, 3, heavy, NOW_MS);
    assert_int_equal(count_of(zone, &zone_policy, NOW_MS), 3);
    use(zone, live, 100, PAIR_SLOTS, 1, later_ms);
    assert_int_equal(stats_of(zone).evicted, 0);
    assert_int_equal(count_of(zone, &zone_policy, later_ms), PAIR_SLOTS);

    for (uint64_t key = 100; key < 100 + PAIR_SLOTS; key++) {
        assert_int_equal(used_by(zone, live, key, 100, later_ms), 1);
    }

    for (uint64_t key = 0; key < 3; key++) {
        assert_int_equal(used_by(zone, over, key, 100, later_ms), 0);
    }

    free(zone);
}

static void test_keys_that_are_over_go_first(void **state) {
    (void)state;

    for (size_t kind = 0; kind < LENGTH(kinds); kind++) {
        Policy slow = of_zone(kind, DAY_MS, WhenFull::kEvict);
        Policy fast = of_zone(kind, SECOND_MS, WhenFull::kEvict);

        check_over_goes_first(slow, own(slow, SECOND_MS), slow);
        check_over_goes_first(slow, own(slow, SECOND_MS), own(slow, HOUR_MS));
        check_over_goes_first(fast, fast, own(fast, DAY_MS));
        check_over_goes_first(fast, own(fast, 777), own(fast, DAY_MS));
    }
}

/* Some keys have used so much of a limit, of which each of many has used little. */
struct flood_t {
    uint64_t limit;
    unsigned percent;
    uint64_t flood_limit;
    uint64_t flood_cost;
};

/* The former stay when ten times as many come as there is room for. */
static void check_own_flood(const Policy &zone_policy, const Policy &heavy, const Policy &light,
                            const flood_t &flood) {
    Zone *zone = zone_of_pairs(zone_policy, 16);
    uint64_t cost = heavy.capacity(flood.limit) * flood.percent / 100;
    uint64_t slots = stats_of(zone).slots;

    use(zone, heavy, 0, 20, cost, NOW_MS, flood.limit);
    use(zone, light, 1000, 10 * slots, flood.flood_cost, NOW_MS, flood.flood_limit);
    assert_true(stats_of(zone).evicted >= 9 * slots);

    for (uint64_t key = 0; key < 20; key++) {
        assert_int_equal(used_by(zone, heavy, key, flood.limit, NOW_MS), cost);
    }

    free(zone);
}

static void test_heavy_keys_survive_a_flood(void **state) {
    static const flood_t floods[] = {{100, 90, 100, 1}, {100, 30, 100, 1}, {10, 100, 1000, 15}};

    (void)state;

    for (size_t kind = 0; kind < LENGTH(kinds); kind++) {
        Policy minute = of_zone(kind, MINUTE_MS, WhenFull::kEvict);

        /* there is no more than one request in such a queue */
        if (minute.capacity(100) == 1) { continue; }

        for (const flood_t &flood : floods) {
            /* rings compare units */
            if (minute.has_rings() && flood.limit < flood.flood_cost) { continue; }

            for (uint64_t window_ms : windows_ms) {
                Policy other = own(minute, window_ms);

                check_own_flood(minute, minute, other, flood);
                check_own_flood(minute, other, minute, flood);
                check_own_flood(minute, other, own(minute, HOUR_MS), flood);
                check_own_flood(minute, own(minute, HOUR_MS), other, flood);
            }
        }
    }
}

/* A key that finds no place is told when the first one is free. */
static void test_a_refused_key_is_told_when_to_come(void **state) {
    (void)state;

    for (size_t kind = 0; kind < LENGTH(kinds); kind++) {
        Policy policy = of_zone(kind, DAY_MS, WhenFull::kDeny);
        Policy fast = own(policy, SECOND_MS);
        Policy slow = own(policy, 7 * (uint64_t)DAY_MS);
        const Policy *comers[] = {&policy, &fast, &slow};

        for (const Policy *comer : comers) {
            Zone *zone = zone_of_pairs(policy, 1);
            Claim claim = claim_of(zone, comer, 1000, 100, 1);

            use(zone, policy, 0, 3, 1, NOW_MS);
            use(zone, fast, 0, 1, 1, NOW_MS);
            use(zone, slow, 0, PAIR_SLOTS - 4, 1, NOW_MS);
            limit_sliding::acquire(&claim, 1, NOW_MS);
            assert_int_equal(claim.outcome, Outcome::kRefused);

            uint64_t wait_ms = claim.describe(NOW_MS).retry_after_ms;
            uint64_t behind_ms = policy.has_rings() ? 64 : 0;

            assert_in_range(wait_ms, 1, HOUR_MS);
            /* states of buckets tell their time, whatever their window */
            if (policy.algorithm < Algorithm::kTokenBucket) {
                assert_false(admits(zone, comer, 1000, 100, 1, NOW_MS + wait_ms - 1));
            }

            assert_true(admits(zone, comer, 1000, 100, 1, NOW_MS + wait_ms + behind_ms));
            assert_int_equal(stats_of(zone).evicted, 0);
            free(zone);
        }
    }
}

/* ---- windows that change ---- */

/* What a key was admitted under a window, by an exact log of it. */
struct admitted_t {
    Policy policy;
    uint64_t limit;
    uint64_t at_ms[8000];
    unsigned n;

    unsigned since(uint64_t from_ms) const {
        unsigned count = 0;

        for (unsigned i = n; i > 0 && at_ms[i - 1] >= from_ms; i--) {
            count++;
        }

        return count;
    }
};

/* A key whose window changes from a minute to an hour and back has what either
 * allows, by what it was admitted under that one; among many other keys. */
static void check_changes(Algorithm algorithm, bool strict) {
    static admitted_t plans[2];
    Policy policy = {10 * SECOND_MS, algorithm, WhenFull::kEvict, 0, 0, strict};
    Zone *zone = zone_of_pairs(policy, 8192);
    uint64_t random = 1;
    uint64_t now_ms = NOW_MS;
    uint64_t others = 1000;
    unsigned full[2] = {0, 0};

    plans[0] = {own(policy, MINUTE_MS), 20, {}, 0};
    plans[1] = {own(policy, HOUR_MS), 150, {}, 0};

    for (unsigned i = 0; i < 20000; i++) {
        bool is_changed = i / 37 % 3 == 1;
        admitted_t &plan = plans[is_changed];
        uint64_t window_ms = plan.policy.window_ms;

        now_ms += random_below(&random, 1500);
        admits(zone, &policy, others++, 100, 1, now_ms);
        admits(zone, &plan.policy, others++, 100, 1, now_ms);

        if (admits(zone, &plan.policy, 1, plan.limit, 1, now_ms)) {
            plan.at_ms[plan.n++] = now_ms;
            assert_true(plan.n < LENGTH(plan.at_ms));
        } else {
            full[is_changed]++;
            if (algorithm == Algorithm::kLog) {
                assert_int_equal(plan.since(now_ms - window_ms + 1), plan.limit);
            }
        }

        uint64_t begin_ms
            = algorithm == Algorithm::kFixed ? now_ms - now_ms % window_ms : now_ms - window_ms + 1;

        assert_in_range(plan.since(begin_ms), 0, plan.limit);
    }

    assert_true(full[0] > 100 && full[1] > 100);
    assert_int_equal(stats_of(zone).evicted, 0);
    free(zone);
}

static void test_windows_that_change_under_load(void **state) {
    (void)state;

    check_changes(Algorithm::kLog, false);
    check_changes(Algorithm::kCounter, true);
    check_changes(Algorithm::kFixed, false);
}

/* ---- idle keys ---- */

/* A key that was used up is as new after so many windows of its own. */
static void check_idle(size_t kind, uint64_t window_ms, uint64_t windows) {
    Policy policy = of_zone(kind, HOUR_MS, WhenFull::kEvict);
    Policy fast = own(policy, window_ms);
    Zone *zone = zone_of_pairs(policy, 1);
    uint64_t capacity = fast.capacity(7);
    uint64_t now_ms = NOW_MS;

    assert_true(admits(zone, &fast, 1, 7, capacity, now_ms));
    assert_false(admits(zone, &fast, 1, 7, 1, now_ms));

    now_ms += windows * window_ms;

    if (used_by(zone, fast, 1, 7, now_ms) != 0 || !admits(zone, &fast, 1, 7, capacity, now_ms)
        || admits(zone, &fast, 1, 7, 1, now_ms)) {
        fail_msg("%s: idle for %llu windows of %llu ms", kinds[kind].name,
                 (unsigned long long)windows, (unsigned long long)window_ms);
    }

    free(zone);
}

/* Neither the time stamps of states wrap, nor for a year the epochs of tags. */
static void test_idle_keys_start_afresh(void **state) {
    static const uint64_t fast_ms[] = {100, 128, 1000, 1024, 60000};

    (void)state;

    for (size_t kind = 0; kind < LENGTH(kinds); kind++) {
        for (uint64_t window_ms : fast_ms) {
            for (unsigned bit = 8; (1ull << bit) * window_ms < YEAR_MS / 2; bit++) {
                for (int off = -3; off <= 3; off++) {
                    check_idle(kind, window_ms, (1ull << bit) + (uint64_t)off);
                    check_idle(kind, window_ms, (3ull << (bit - 1)) + (uint64_t)off);
                    check_idle(kind, window_ms, (1ull << bit) - 100 + (uint64_t)off);
                }
            }
        }
    }
}

/* Sweeps all of a zone, in parts. */
static void sweep(Zone *zone, const Policy &policy, uint64_t now_ms) {
    uint64_t bytes = Line::kSlots * zone->slot_bytes;

    for (uint64_t part = 0; part < 2 * zone->pairs.all(); part++) {
        zone->sweep(policy, now_ms, 7, part, bytes);
    }
}

/* Returns true if a key that has used its limit has none of it left after a time, in which the zone
 * was swept or not. */
static bool is_used_after(size_t kind, uint64_t window_ms, uint64_t shared_ms, uint64_t ms,
                          bool is_swept) {
    Policy shared = of_zone(kind, shared_ms, WhenFull::kEvict);
    Policy policy = window_ms == shared_ms ? shared : own(shared, window_ms);
    Zone *zone = zone_of_pairs(shared, 4);

    while (admits(zone, &policy, 1, 7, 1, NOW_MS)) {}

    if (is_swept) { sweep(zone, shared, NOW_MS + ms / 2); }

    bool is_used = !admits(zone, &policy, 1, 7, 1, NOW_MS + ms);

    free(zone);

    return is_used;
}

/* A sweep withdraws states that are over, and no others, so that a key does not meet its own state
 * when the epochs wrap. */
static void test_sweeps(void **state) {
    unsigned met = 0;

    (void)state;

    for (size_t kind = 0; kind < LENGTH(kinds); kind++) {
        for (uint64_t window_ms : {uint64_t{kWindowMinMs}, uint64_t{DAY_MS}}) {
            for (uint64_t shared_ms : {uint64_t{kWindowMinMs}, uint64_t{MINUTE_MS}}) {
                assert_true(is_used_after(kind, window_ms, shared_ms, 0, true));

                for (uint64_t epoch_ms : {4096, 3200, 6400}) {
                    uint64_t wrap_ms = epoch_ms << tag::kEpochBits;

                    met += is_used_after(kind, window_ms, shared_ms, wrap_ms, false);
                    assert_false(is_used_after(kind, window_ms, shared_ms, wrap_ms, true));
                }
            }
        }
    }

    assert_true(met > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_windows_are_decided_as_those_of_a_zone),
        cmocka_unit_test(test_windows_of_a_calendar),
        cmocka_unit_test(test_keys_that_are_over_go_first),
        cmocka_unit_test(test_heavy_keys_survive_a_flood),
        cmocka_unit_test(test_a_refused_key_is_told_when_to_come),
        cmocka_unit_test(test_windows_that_change_under_load),
        cmocka_unit_test(test_idle_keys_start_afresh),
        cmocka_unit_test(test_sweeps),
    };

    return cmocka_run_group_tests_name("own_window", tests, NULL, NULL);
}
