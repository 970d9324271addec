/* Copyright (C) the limit_sliding authors */

/*
 * A process stops at each one of its accesses to a zone with inflight= and its ledger: for good,
 * or until another has done something.  Units of the dead are given back, no others are, and the
 * limit is never exceeded.
 */

#include "holds.hpp"
#include "step.hpp"

#include "core/rules/in_flight.hpp"

#define KEY 1
#define LIMIT 3
#define BYTES 4096
#define LEDGER_AT 1024
#define OTHER_KEY 50

typedef void (*act_t)(void);

/* What processes share, and what each knows: worker 0 works, worker 1 is another one, and
 * worker 2 dies early. */
static struct {
    Zone *zone;
    Ledger *ledger;
    Holdings holdings[3];
    Hold hold[3][4 + PAIR_SLOTS];
} all;

static struct {
    uint8_t before[BYTES];
    decltype(all) known; /* of before */
    act_t others;
    unsigned deaths;
} run;

static int take(unsigned worker, unsigned n, uint64_t key = KEY) {
    return takes(&all.holdings[worker], all.zone, &all.hold[worker][n], key, LIMIT, 1, 1);
}

static uint64_t count(unsigned worker, uint64_t key = KEY) {
    uint64_t n = 0;

    for (Hold &hold : all.hold[worker]) {
        uint64_t hash = all.zone->hash({(const char *)&key, sizeof(key)});

        n += hold.is_held() && all.ledger->entry(hold.entry).hash.load() == hash;
    }

    return n;
}

/* ---- what there was ---- */

static void begin_new() {}

static void begin_held() {
    assert_true(take(0, 0));
    assert_true(take(1, 0));
}

/* The last change of the key is that of the other worker, which has given back all. */
static void begin_rested() {
    begin_held();
    all.hold[0][0].release();
    all.hold[1][0].release();
}

/* Worker 0 has taken and released a unit of the key.  Its next change gets the number of the
 * release again, as if there had been 65,536 changes since. */
static void wrap_number(uint64_t key) {
    using Word = Ledger::Word;

    assert_true(take(0, 0, key));
    const uint32_t entry = all.hold[0][0].entry;
    all.hold[0][0].release();

    Atomic<uint64_t> &word = all.ledger->entry(entry).word;
    const uint64_t number = (word.load() - 1) & Word::kNumberMask;
    word.store((word.load() & ~Word::kNumberMask) | number);
}

static void begin_wrapped() { wrap_number(KEY); }
static void begin_wrapped_of_other() { wrap_number(OTHER_KEY); }

/* No slot is unused, and the key's is the only one at rest. */
static void begin_full() {
    for (unsigned i = 0; i < PAIR_SLOTS - 1; i++) {
        assert_true(take(1, 4 + i, 100 + i));
    }

    assert_true(take(1, 0));
    all.hold[1][0].release();
}

static void begin_full_held() {
    begin_full();
    assert_true(take(0, 0));
}

/* Worker 0 has 20 entries, and uses none of them. */
static void begin_many() {
    Hold holds[20];

    for (Hold &hold : holds) {
        assert_true(takes(&all.holdings[0], all.zone, &hold, KEY, 20));
    }

    for (Hold &hold : holds) {
        hold.release();
    }
}

/* ---- what a worker does ---- */

static void act_nothing() {}
static void act_take() { take(0, 1); }
static void act_release() { all.hold[0][0].release(); }
static void act_release_and_take() {
    act_release();
    act_take();
}
static void act_tidy() { all.holdings[0].tidy(); }

static void other_takes() { take(1, 1); }
static void other_fills() {
    take(1, 1);
    take(1, 2);
    take(1, 3);
}
static void other_releases() { all.hold[1][0].release(); }
static void other_comes_and_goes() {
    take(1, 1);
    all.hold[1][1].release();
}

/* Another key takes the slot if this one is at rest. */
static void other_key_takes() { take(1, 1, OTHER_KEY); }
static void other_key_comes_and_goes() {
    other_key_takes();
    all.hold[1][1].release();
}

/* The same, and the key gets a slot again: that of another key, if there is none. */
static void other_key_takes_and_key_moves() {
    other_key_takes();
    all.hold[1][4].release();
    take(1, 2);
}

static const struct {
    const char *name;
    act_t before, work;
} scenes[] = {
    {"a new key", begin_new, act_take},
    {"a known key", begin_held, act_take},
    {"a key at rest", begin_rested, act_take},
    {"a number that comes again", begin_wrapped, act_take},
    {"a number that another key had", begin_wrapped_of_other, act_take},
    {"a full zone", begin_full, act_take},
    {"a release", begin_held, act_release},
    {"a release in a full zone", begin_full_held, act_release},
    {"a release and the next request", begin_full_held, act_release_and_take},
    {"free entries", begin_many, act_tidy},
};

static const struct {
    act_t act;
} others[] = {
    {act_nothing},
    {other_takes},
    {other_fills},
    {other_releases},
    {other_comes_and_goes},
    {other_key_takes},
    {other_key_comes_and_goes},
    {other_key_takes_and_key_moves},
};

/* ---- steps ---- */

static void save() {
    memcpy((void *)&run.known, (void *)&all, sizeof(all));
    memcpy(run.before, step.memory, BYTES);
}

static void restore() {
    memcpy(step.memory, run.before, BYTES);
    memcpy((void *)&all, (void *)&run.known, sizeof(all));
}

static void begin(act_t before) {
    auto *memory = static_cast<uint8_t *>(step_begin(BYTES));

    memset((void *)&all, 0, sizeof(all));
    all.zone = Zone::init(memory, PAIR_BYTES, holding, 0, test_secret);
    all.ledger = Ledger::init(memory + LEDGER_AT, LEDGER_BYTES);
    assert_non_null(all.zone);

    for (unsigned worker = 0; worker < 3; worker++) {
        all.holdings[worker] = holdings_of(all.zone, all.ledger, worker);
    }

    memset((void *)&run, 0, sizeof(run));
    before();
    save();
}

static Slot &slot(unsigned n) {
    return WordSlots(all.zone).slot(n / Line::kSlots, n % Line::kSlots);
}

/* All changes have ended. */
static void check_slots() {
    for (unsigned n = 0; n < PAIR_SLOTS; n++) {
        const Copy copy = Copy::read(slot(n));

        if (copy.kind == Copy::tentative) { step_fault("a slot is lost"); }

        if (copy.kind == Copy::confirmed && InFlight::mark(copy.bare_state()) != 0) {
            step_fault("a mark stays");
        }
    }
}

/* These workers live, and no other one. */
static void check(unsigned first, unsigned last) {
    uint64_t requests = 0;

    for (uint64_t key : {KEY, OTHER_KEY}) {
        uint64_t held = 0;

        for (unsigned worker = first; worker <= last; worker++) {
            held += count(worker, key);
        }

        if (held > LIMIT) { step_fault("the limit was exceeded"); }
        if (held_of(all.zone, key) > held) { step_fault("units have leaked"); }
        if (held_of(all.zone, key) < held) { step_fault("units that are held do not count"); }
    }

    for (unsigned worker = first; worker <= last; worker++) {
        for (const Hold &hold : all.hold[worker]) {
            requests += hold.is_held();
        }
    }

    if (all.ledger->sums(nullptr, 1).requests != requests) { step_fault("the ledger is wrong"); }

    check_slots();
}

/* After a death of worker 0, worker 1 goes on and gives back the units; or dies as well while it
 * does so, and another one begins again. */
static void check_after_death(const act_t others) {
    others();

    if (count(1) > LIMIT || held_of(all.zone, KEY) < count(1)) {
        step_fault("units that are held do not count after a death");
    }

    save();
    int is_dead = 1;

    for (unsigned changes = 1; is_dead; changes++) {
        restore();
        is_dead = step_other_dies([] { all.holdings[1].recover(0); }, changes);

        if (is_dead) { all.holdings[1].recover(0); }

        check(1, 1);
        if (all.ledger->is_used(0)) { step_fault("the seat is still in use"); }
    }
}

static void test_deaths(void **) {
    for (const auto &scene : scenes) {
        for (const auto &other : others) {
            int is_dead = 1;

            for (unsigned changes = 1; is_dead; changes++) {
                begin(scene.before);
                is_dead = step_other_dies(scene.work, changes);
                run.deaths = changes;
                check_after_death(other.act);
                step_end_of(scene.name);
            }

            assert_true(run.deaths > 1);
        }
    }
}

/* ---- stalls ---- */

static unsigned other_changes;
static int other_is_dead;

static void stopped() {
    if (other_changes == 0) {
        run.others();
    } else {
        other_is_dead = step_other_dies(run.others, other_changes);
    }
}

/* Worker 0 stands still before one access, while worker 1 works, and dies after so many changes;
 * 0: it lives.  Returns false if worker 1 made fewer changes.  At last worker 0 gives back units of
 * the dead, and of worker 2. */
static int check_stalls(const char *name, act_t work, unsigned changes) {
    int some_died = changes == 0;

    other_changes = changes;
    step.stopped = stopped;

    const unsigned times = step_stop_everywhere(
        [] {
            restore();
            other_is_dead = 0;
        },
        work,
        [&] {
            some_died |= other_is_dead;
            all.holdings[0].recover(2);

            if (changes != 0) {
                all.holdings[0].recover(1);
                if (all.ledger->is_used(1)) { step_fault("the seat is still in use"); }
                check(0, 0);
            } else {
                check(0, 1);
            }
        });

    if (times < 3) { fail_msg("%s: no access", name); }

    return some_died;
}

static void test_stalls(void **) {
    for (const auto &scene : scenes) {
        for (const auto &other : others) {
            int some_died = 1;

            for (unsigned changes = 0; some_died; changes++) {
                begin(scene.before);
                run.others = other.act;
                some_died = check_stalls(scene.name, scene.work, changes);
                step_end_of(scene.name);
            }
        }
    }
}

/* Worker 2 has died at some change.  Worker 0 gives back its units, and stands still meanwhile. */
static void test_stalls_of_recovery(void **) {
    for (const act_t work : {+[] { take(2, 1); }, +[] { all.hold[2][0].release(); }}) {
        for (const auto &other : others) {
            int is_dead = 1;

            for (unsigned changes = 1; is_dead; changes++) {
                begin([] {
                    begin_full();
                    assert_true(take(2, 0));
                });
                is_dead = step_other_dies(work, changes);
                save();
                run.others = other.act;
                check_stalls(
                    "a recovery", [] { all.holdings[0].recover(2); }, 0);
                step_end_of("a recovery");
            }
        }
    }
}

/* Worker 2 has died at some change.  Worker 1 gives back its units, and may die as well, while
 * worker 0 stands still and has read of the change of worker 2. */
static void test_stalls_during_a_recovery(void **) {
    for (const act_t work : {+[] { take(2, 1); }, +[] { all.hold[2][0].release(); }}) {
        int is_dead = 1;

        for (unsigned changes = 1; is_dead; changes++) {
            int some_died = 1;

            for (unsigned other = 0; some_died; other++) {
                begin([] { assert_true(take(2, 0)); });
                is_dead = step_other_dies(work, changes);
                save();
                run.others = [] { all.holdings[1].recover(2); };
                some_died = check_stalls("during a recovery", act_take, other);
                step_end_of("during a recovery");
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deaths),
        cmocka_unit_test(test_stalls),
        cmocka_unit_test(test_stalls_of_recovery),
        cmocka_unit_test(test_stalls_during_a_recovery),
    };

    return cmocka_run_group_tests_name("steps of units in flight", tests, NULL, NULL);
}
