/* Copyright (C) the limit_sliding authors */

/*
 * A process stops at each one of its accesses to shared memory while it settles
 * what a history of events has used: for good, or while another settles as well.
 */

#include "core/policy/override.hpp"
#include "core/rings/used_units.hpp"
#include "step.hpp"

#include <algorithm>

#define KEY 1
#define LIMIT 20
#define NOW_MS (PRESENT * MINUTE_MS + 1)
#define RINGS_BYTES (kZoneAlign + 16 * 1024)
#define ALL_BYTES (RINGS_BYTES + DEBTS_BYTES)

enum work_t { CHARGE, REFUND, GIVE_BACK, ADMIT, WORKS, REFUND_LATE };

static struct {
    Zone *zone;
    Policy policy;
    Claim first;
    uint64_t now_ms;
    work_t other;
    uint64_t other_units;
    jmp_buf dead;
} scene;

static Debts *debts(void) {
    return reinterpret_cast<Debts *>(reinterpret_cast<char *>(scene.zone) + RINGS_BYTES);
}

static Claim claim_now(void) { return claim_of(scene.zone, debts(), &scene.policy, KEY, LIMIT, 1); }

static uint64_t used(void) {
    Claim claim = claim_now();

    claim.cost = 0;
    limit_sliding::acquire(&claim, 1, scene.now_ms);

    return scene.policy.used(claim.describe(scene.now_ms));
}

/* Does what is left of a refund that began before the key owed. */
static void refund_late(uint64_t units) {
    Claim claim = claim_now();
    UsedUnits used_units(claim, scene.now_ms + scene.zone->offset_ms, false);
    Events &events = used_units.events();

    /* this tells the key's name, even if the key owes */
    events.open(events.table().look());
    assert_true(events.note_refunds());
    used_units.refunds().add(events.tick_of({scene.first.state & Event::kTickMask}), units);
}

/* Returns by how many units more are used, modulo 2^64. */
static uint64_t work(work_t what, uint64_t units) {
    Claim claim = claim_now();

    switch (what) {
    case CHARGE:
        assert_int_equal(limit_sliding::charge(claim, units, scene.now_ms), 0);
        return units;
    case REFUND:
        limit_sliding::refund(scene.first, units, NOW_MS, scene.now_ms);
        return -units;
    case REFUND_LATE:
        refund_late(units);
        return -units;
    case GIVE_BACK:
        limit_sliding::give_back(claim, units, scene.now_ms);
        return -units;
    default:
        claim.cost = units;
        limit_sliding::acquire(&claim, 1, scene.now_ms);

        /* while others only consume, a rejected request has to wait */
        if (scene.other == ADMIT && claim.outcome == Outcome::kRejected) {
            assert_int_not_equal(claim.retry_after_ms(scene.now_ms), 0);
        }

        return claim.outcome == Outcome::kAdmitted ? units : 0;
    }
}

static uint64_t others;

static void work_other(void) { others = work(scene.other, scene.other_units); }

static void die(void) { longjmp(scene.dead, 1); }

/* Calls check(start) for keys that owe nothing, and much. */
template <class Check>
static void for_keys(const Check &check) {
    static const uint64_t charged[] = {4, 100};
    Policy policies[3] = {evicting(MINUTE_MS), evicting(MINUTE_MS), evicting(SECOND_MS)};
    uint8_t *start = static_cast<uint8_t *>(malloc(ALL_BYTES));

    policies[0].algorithm = Algorithm::kLog;
    policies[1].precision = 4;
    policies[2].precision = 4;

    for (const Policy &policy : policies) {
        for (uint64_t owed : charged) {
            /* in a zone of seconds, it is the key's own */
            scene.policy = with_window(policy, {MINUTE_MS, Calendar::kNone});
            scene.zone = Zone::init(step_begin(ALL_BYTES), RINGS_BYTES, policy, 0, test_secret);
            Debts::init(debts(), DEBTS_BYTES);
            scene.now_ms = NOW_MS;
            scene.first = claim_now();
            scene.first.cost = 15;
            limit_sliding::acquire(&scene.first, 1, NOW_MS);
            scene.now_ms = NOW_MS + 20 * SECOND_MS;
            work(CHARGE, owed);
            scene.now_ms++;
            memcpy(start, (void *)scene.zone, ALL_BYTES);
            check(start);
            step_end();
        }
    }

    free(start);
}

/* Calls check(start, work, units) for these keys, with units that fit or are owed. */
template <class Check>
static void for_all(const Check &check) {
    for_keys([&](const uint8_t *start) {
        for (uint64_t units : {14, 70}) {
            for (int what = CHARGE; what < WORKS; what++) {
                if (what == CHARGE || units < 15) { check(start, (work_t)what, units); }
            }
        }
    });
}

static void test_death(void **state) {
    (void)state;

    for_all([](const uint8_t *start, work_t what, uint64_t units) {
        volatile bool is_whole = false;
        uint64_t before = 0;

        memcpy((void *)scene.zone, start, ALL_BYTES);
        before = used();

        uint64_t after = before + work(what, units);

        step.stopped = die;

        for (volatile unsigned stop_at = 1; !is_whole; stop_at++) {
            memcpy((void *)scene.zone, start, ALL_BYTES);
            step.stop_at = stop_at;

            if (setjmp(scene.dead) == 0) {
                STEP_THROUGH(work(what, units));
                is_whole = true;
            }

            step.is_stepping = 0;

            uint64_t seen = used();

            /* a part may be recorded, or given back */
            assert_in_range(seen, std::min(before, after), std::max(before, after));

            if (is_whole) { assert_int_equal(seen, after); }

            assert_int_equal(work(CHARGE, 17), 17);
            assert_int_equal(used(), seen + 17);
        }
    });
}

/* Does work, at each access of which another process does its own. */
static void stall(const uint8_t *start, work_t what, uint64_t units, work_t other,
                  uint64_t other_units) {
    scene.other = other;
    scene.other_units = other_units;
    step.stopped = work_other;
    step.stop_at = 0;

    do {
        uint64_t before, ours;

        memcpy((void *)scene.zone, start, ALL_BYTES);
        before = used();
        others = 0;
        step.stop_at++;
        STEP_THROUGH(ours = work(what, units));
        assert_int_equal(used(), before + ours + others);

        /* events of no other units than these are left */
        work(GIVE_BACK, 1000);
        assert_int_equal(used(), 0);
    } while (step.accesses >= step.stop_at);

    assert_true(step.stop_at > 3);
}

static void test_stall(void **state) {
    (void)state;

    for_all([](const uint8_t *start, work_t what, uint64_t units) {
        for (int other = CHARGE; other < WORKS; other++) {
            for (uint64_t other_units : {1, 30}) {
                /* no more is given back than was used */
                if (other != CHARGE && other_units > 1) { continue; }

                stall(start, what, units, (work_t)other, other_units);
            }
        }
    });
}

/* Refunds come without a change of the key's own words, so they may be read twice, and
 * be more then. */
static void test_stall_while_refunds_come(void **state) {
    (void)state;

    for_keys([](uint8_t *start) {
        memcpy((void *)scene.zone, start, ALL_BYTES);
        refund_late(1);
        memcpy(start, (void *)scene.zone, ALL_BYTES);

        uint64_t taken = used();

        stall(start, CHARGE, LIMIT - std::min<uint64_t>(LIMIT, taken) + 1, REFUND_LATE, 9);
        stall(start, GIVE_BACK, taken - 10, REFUND_LATE, 9);
        stall(start, ADMIT, 1, REFUND_LATE, 9);
    });
}

/* Two may give the same units back at once.  What is owed is paid at the same pace. */
static void test_refunds_of_more_than_was_used(void **state) {
    (void)state;

    for_keys([](const uint8_t *) {
        if (used() > LIMIT) { return; }

        work(CHARGE, 12);
        refund_late(15);
        refund_late(15);
        work(CHARGE, 100);
        scene.now_ms += 3 * MINUTE_MS;
        assert_in_range(used(), 111 - 3 * LIMIT, 111 - LIMIT);
    });
}

/* A debtor with room for a request stands still, and another request takes that room: the debt is
 * neither lost nor paid twice. */
static void test_stall_of_a_debtor(void **state) {
    (void)state;

    for_keys([](uint8_t *start) {
        if (used() > LIMIT) { return; }

        work(CHARGE, 7);
        assert_int_equal(used(), LIMIT + 6);

        /* all units of the history have left it, and no window has paid yet */
        scene.now_ms += MINUTE_MS + 16 * SECOND_MS;
        assert_int_equal(used(), 6);
        memcpy(start, (void *)scene.zone, ALL_BYTES);
        stall(start, ADMIT, 1, ADMIT, LIMIT - 6);
    });
}

static Claim rejected(uint64_t units) {
    Claim claim = claim_now();

    claim.cost = units;
    claim.outcome = Outcome::kRejected;

    return claim;
}

static void record_other(void) {
    Claim claim = rejected(4);

    record_rejected(&claim, scene.now_ms);
}

/* Rejected requests are recorded as often as they come. */
static void test_stall_of_a_record(void **state) {
    (void)state;

    for_keys([](const uint8_t *start) {
        memcpy((void *)scene.zone, start, ALL_BYTES);

        if (used() > LIMIT) { return; }

        work(GIVE_BACK, 1000);
        work(CHARGE, 5);

        static uint8_t begin[ALL_BYTES];
        memcpy(begin, (void *)scene.zone, ALL_BYTES);
        scene.policy.counts_rejected = true;

        for (uint64_t later_ms : {0u, 1u, 20 * SECOND_MS}) {
            scene.now_ms += later_ms;
            step.stopped = record_other;
            step_stop_everywhere([&] { memcpy((void *)scene.zone, begin, ALL_BYTES); },
                                 [&] {
                                     Claim claim = rejected(3);

                                     record_rejected(&claim, scene.now_ms);
                                 },
                                 [&] {
                                     /* after the last access of all nobody came */
                                     bool came = step.accesses >= step.stop_at;

                                     if (used() != 5u + 3 + (came ? 4 : 0)) {
                                         step_fault("other units are on record");
                                     }
                                 });
        }

        assert_int_equal(step_faults.n, 0);
    });
}

/* ---- the sweep of debts ---- */

static struct {
    Debts *debts;
    uint64_t key; /* that owes while the sweep stands still */
} swept;

static constexpr uint64_t kOldKeys = 4; /* as many as there are places */

static constexpr uint64_t kSweptMs = 200000ull * MINUTE_MS;

/* By the numbers of another window a debt of the further key would be old. */
static DebtClock debt_clock(uint64_t key, uint64_t now_ms) {
    const uint64_t window_ms = key <= kOldKeys ? MINUTE_MS : DAY_MS;

    return {now_ms, now_ms * kDebtParts / window_ms, 10, binary_digits(window_ms)};
}

static uint64_t hash_of(uint64_t key) { return key << 40 | key << 8; }

static void owe(uint64_t key, uint64_t units, uint64_t now_ms) {
    swept.debts->add(hash_of(key), units, 0, false, debt_clock(key, now_ms));
}

static void owe_again(void) { owe(swept.key, 40, kSweptMs); }

/* A sweep deletes old debts, but none that begins meanwhile, of the same key or of another one. */
static void test_stall_of_a_sweep(void **state) {
    (void)state;

    for (swept.key = 1; swept.key <= kOldKeys + 1; swept.key++) {
        uint64_t deleted = 0;

        swept.debts = Debts::init(step_begin(4096), DEBTS_BYTES);
        step.stopped = owe_again;
        step_stop_everywhere(
            [] {
                memset((void *)swept.debts, 0, DEBTS_BYTES);
                Debts::init(swept.debts, DEBTS_BYTES);

                for (uint64_t key = 1; key <= kOldKeys; key++) {
                    owe(key, 30, MINUTE_MS);
                }
            },
            [&] { deleted = swept.debts->sweep(kSweptMs, 0, DEBTS_BYTES); },
            [&] {
                /* after the last access of all nobody came */
                const bool came = step.accesses >= step.stop_at;
                const DebtClock clock = debt_clock(swept.key, kSweptMs);

                if (swept.debts->find(hash_of(swept.key), clock).units != (came ? 40 : 0)) {
                    step_fault("a debt is lost");
                }

                if (deleted < kOldKeys - came || deleted > kOldKeys) {
                    step_fault("other debts are deleted");
                }
            });
        step_end_of("a sweep of debts");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_stall),
        cmocka_unit_test(test_stall_while_refunds_come),
        cmocka_unit_test(test_refunds_of_more_than_was_used),
        cmocka_unit_test(test_stall_of_a_debtor),
        cmocka_unit_test(test_stall_of_a_record),
        cmocka_unit_test(test_stall_of_a_sweep),
    };

    return cmocka_run_group_tests_name("step_settle", tests, NULL, NULL);
}
