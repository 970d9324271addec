/* Copyright (C) the limit_sliding authors */

/*
 * A process stops at each one of its accesses to a group of leases: for good,
 * or until another has done something.  What can be spent in the end is never
 * more than was added, key by key and limit by limit; and if nobody has died
 * all of it.
 */

#include "leases.hpp"
#include "step.hpp"

#define PAGE_BYTES 4096
#define LIMIT 1000
#define KEYS 2
#define LIMITS 2 /* told as LIMIT and LIMIT + 1: units are not each other's */
#define UNITS 5

typedef int balance_t[KEYS][LIMITS];
typedef void (*act_t)(Leases *leases);

static Policy policy;
static Claim claims[KEYS];
static Claim spent;       /* by begin_spent(), for act_return() */
static balance_t balance; /* added, and not spent */

static struct {
    act_t others;
    uint8_t before[PAGE_BYTES]; /* the work */
    uint8_t last[PAGE_BYTES];
    unsigned deaths;
} run;

/* ---- what a worker does ---- */

static void add_units(Leases *leases, unsigned key, unsigned limit, uint64_t sent_ms) {
    told_t told = {SERVER_MS, LIMIT + limit, 900, 0};

    balance[key][limit] += UNITS;
    lease_add(leases, &claims[key], told, UNITS, sent_ms, sent_ms);
}

static int spend_unit(Leases *leases, unsigned key, balance_t of) {
    Verdict verdict;
    Claim claim = claims[key];

    if (!leases->spend(&claim, NOW_MS, &verdict)) { return 0; }

    of[key][verdict.limit - LIMIT]--;

    return 1;
}

static void act_nothing(Leases *leases) { (void)leases; }

static void act_add(Leases *leases) { add_units(leases, 0, 0, NOW_MS); }

static void act_add_twice(Leases *leases) {
    act_add(leases);
    act_add(leases);
}

/* Of a limit that was changed, so that what there is lapses. */
static void act_add_changed(Leases *leases) { add_units(leases, 0, 1, NOW_MS + 1); }

static void act_add_late(Leases *leases) { add_units(leases, 0, 1, NOW_MS - 1); }

/* When other leases are no longer in use. */
static void act_add_other(Leases *leases) { add_units(leases, 1, 0, NOW_MS + LEASE_MS); }

static void act_spend(Leases *leases) { spend_unit(leases, 0, balance); }

static void act_spend_and_add(Leases *leases) {
    act_spend(leases);
    act_add(leases);
}

static void act_spend_of_both(Leases *leases) {
    spend_unit(leases, 0, balance);
    spend_unit(leases, 1, balance);
}

static void act_return(Leases *leases) {
    balance[0][0]++;
    leases->give_back(spent, NOW_MS);
}

/* Only that key's. */
static void act_forget(Leases *leases) { leases->forget(claims[0], NOW_MS); }

/* ---- what there was ---- */

static void begin_known(Leases *leases) { add_units(leases, 0, 0, NOW_MS - 10); }

static void begin_both(Leases *leases) {
    begin_known(leases);
    add_units(leases, 1, 0, NOW_MS - 10);
}

static void begin_spent(Leases *leases) {
    Verdict verdict;

    begin_known(leases);
    spent = claims[0];
    assert_true(leases->spend(&spent, NOW_MS, &verdict));
    balance[0][0]--;
}

static Leases *begin(act_t before) {
    Leases *leases = Leases::init(step_begin(PAGE_BYTES), LEASES_BYTES(1));

    policy = evicting(DAY_MS);
    policy.algorithm = Algorithm::kFixed;

    for (unsigned key = 0; key < KEYS; key++) {
        claims[key] = lease_claim(&policy, key, 1);
    }

    memset(&balance, 0, sizeof(balance));
    before(leases);

    memset(&run, 0, sizeof(run));
    memcpy(run.before, leases, PAGE_BYTES);
    memcpy(run.last, leases, PAGE_BYTES);

    return leases;
}

/* Spends all, of memory that it leaves alone; returns what is left over. */
static int check_balance(const void *memory) {
    alignas(64) static uint8_t copy[PAGE_BYTES];
    Leases *leases = (Leases *)copy;
    balance_t left;
    int rest = 0;

    memcpy(copy, memory, PAGE_BYTES);
    memcpy(left, balance, sizeof(balance));

    for (unsigned key = 0; key < KEYS; key++) {
        while (spend_unit(leases, key, left)) {}

        for (unsigned limit = 0; limit < LIMITS; limit++) {
            rest += left[key][limit];

            if (left[key][limit] < 0) { step_fault("more was spent than added"); }
        }
    }

    return rest;
}

/* ---- deaths ---- */

/* A death is as good as any other that leaves the same memory behind. */
static void die(void) {
    alignas(64) static uint8_t copy[PAGE_BYTES];
    Leases *leases = (Leases *)copy;
    balance_t kept;

    if (memcmp(run.last, step.memory, PAGE_BYTES) == 0) { return; }

    run.deaths++;
    memcpy(run.last, step.memory, PAGE_BYTES);
    check_balance(run.last);

    /* others go on: there is room for two keys, of which one is the dead's */

    memcpy(kept, balance, sizeof(balance));
    memcpy(copy, run.last, PAGE_BYTES);
    memset(&balance, 0, sizeof(balance));

    lease_drain(leases, &claims[0], NOW_MS);
    add_units(leases, 0, 1, NOW_MS + 2);
    add_units(leases, 1, 1, NOW_MS + 1 + LEASE_MS);

    if (check_balance(leases) != 0) { step_fault("not all was spent after a death"); }

    memcpy(balance, kept, sizeof(balance));
}

static void test_deaths(void **state) {
    static const struct {
        const char *name;
        act_t before, work;
    } scenes[] = {
        {"a new key", act_nothing, act_add},
        {"a known key", begin_known, act_add},
        {"its limit changed", begin_known, act_add_changed},
        {"another key", begin_known, act_add_other},
        {"one key of two", begin_both, act_add},
        {"a spend", begin_known, act_spend},
        {"a return", begin_spent, act_return},
        {"forgotten", begin_both, act_forget},
    };

    (void)state;

    for (size_t i = 0; i < LENGTH(scenes); i++) {
        Leases *leases = begin(scenes[i].before);

        step.after = die;
        STEP_THROUGH(scenes[i].work(leases));
        assert_true(run.deaths > 0);
        step_end_of(scenes[i].name);
    }
}

/* ---- stalls ---- */

static void stopped(void) { run.others(static_cast<Leases *>(step.memory)); }

/* `lossless`: all that was added can be spent in the end. */
static void check_stalls(const char *name, act_t before, act_t work, act_t others, int lossless) {
    Leases *leases = begin(before);
    balance_t start;

    run.others = others;
    memcpy(start, balance, sizeof(balance));
    step.stopped = stopped;

    const unsigned times = step_stop_everywhere(
        [&] {
            memcpy(leases, run.before, PAGE_BYTES);
            memcpy(balance, start, sizeof(balance));
        },
        [&] { work(leases); },
        [&] {
            if (check_balance(leases) > 0 && lossless) { step_fault("units were lost"); }
        });

    assert_true(times > 3);
    step_end_of(name);
}

static void test_stalls(void **state) {
    static const struct {
        const char *name;
        act_t act;
        int lossless;
    } others[] = {
        {"add", act_add, 1},
        {"add twice", act_add_twice, 1},
        {"spend", act_spend, 1},
        {"spend, add", act_spend_and_add, 1},
        {"limit changed", act_add_changed, 0},
        {"late", act_add_late, 0},
        {"other key", act_add_other, 0},
        {"both", act_spend_of_both, 1},
        {"forget", act_forget, 0},
    };
    static const struct {
        const char *name;
        act_t before, work;
        int lossless;
    } scenes[] = {
        {"a new key", act_nothing, act_add, 1},
        {"a known key", begin_known, act_add, 1},
        {"its limit changed", begin_known, act_add_changed, 0},
        {"another key", begin_known, act_add_other, 0},
        {"one key of two", begin_both, act_add, 1},
        {"a spend", begin_known, act_spend, 1},
        {"a spend of two", begin_both, act_spend_of_both, 1},
        {"a return", begin_spent, act_return, 1},
    };
    char name[100];

    (void)state;

    for (size_t i = 0; i < LENGTH(scenes); i++) {
        for (size_t j = 0; j < LENGTH(others); j++) {
            snprintf(name, sizeof(name), "%s / %s", scenes[i].name, others[j].name);
            check_stalls(name, scenes[i].before, scenes[i].work, others[j].act,
                         scenes[i].lossless && others[j].lossless);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deaths),
        cmocka_unit_test(test_stalls),
    };

    return cmocka_run_group_tests_name("lease step", tests, NULL, NULL);
}
