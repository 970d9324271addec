/* Copyright (C) the limit_sliding authors */

/*
 * A process stops at each one of its accesses to shared memory: for good, or
 * until others have had theirs.
 */

#include "spare.hpp"
#include "step.hpp"

#define KEY 1
#define TIMES_MAX 100
#define NOW_MS (PRESENT * MINUTE_MS + 1)

/* Room for many rings. */
#define RINGS_BYTES (kZoneAlign + 16 * 1024)

typedef struct scene_s {
    Algorithm algorithm;
    size_t bytes;
    void (*begin)(struct scene_s *scene);
    void (*work)(struct scene_s *scene); /* what is stopped */
    uint64_t start_ms;                   /* after NOW_MS */
    uint64_t later_ms;                   /* than what was before is the work */
    uint64_t victor;                     /* a key that takes the slot of the idle one */
    unsigned others;                     /* requests while it stands still, each a ms later */
    unsigned other_keys;                 /* that come then, too, once each */
    uint64_t pause_ms;                   /* before they come */
    uint64_t behind_ms;                  /* the clock of these is behind that of the work */
    bool is_swept;                       /* the zone is swept before they come */
    bool is_forgotten;                   /* the key is deleted before they come */
    uint32_t limit;                      /* 0: more than they are */
    uint32_t left;                       /* of it, by a clock that is behind */

    Policy policy;
    Zone *zone;
    Claim claim;   /* the work's */
    uint32_t told; /* by it: what remains */
    uint64_t now_ms;
    unsigned admitted; /* of what counts still when the work begins */
    uint64_t times_ms[TIMES_MAX];
} scene_t;

static struct {
    scene_t *scene;
    uint8_t *memory; /* the zone after the last one */
    unsigned deaths; /* after which the zone was another */
    unsigned die_at; /* another's change */
    int is_whole;    /* was it done before? */
    unsigned wrong;
    unsigned wrong_at;
    unsigned wrong_rest;
} run;

static void wrong(unsigned rest) {
    run.wrong++;
    run.wrong_at = step.accesses;
    run.wrong_rest = rest;
}

static void others(void);

static void work_in_steps(scene_t *scene, void (*after)(void)) {
    step.after = after;
    step.stopped = others;
    STEP_THROUGH(scene->work(scene));
}

/* ---- scenes ---- */

static int demand(scene_t *scene, Zone *zone, uint64_t now_ms) {
    return admits(zone, &scene->policy, KEY, scene->limit, 1, now_ms);
}

/* What the zone still admits, one unit each; time stands still. */
static unsigned rest_of(scene_t *scene, Zone *zone) {
    unsigned rest = 0;

    while (rest <= scene->limit && demand(scene, zone, scene->now_ms)) {
        rest++;
    }

    return rest;
}

static void note(scene_t *scene, uint64_t time_ms) {
    if (scene->admitted < TIMES_MAX) { scene->times_ms[scene->admitted] = time_ms; }

    scene->admitted++;
}

static void admit(scene_t *scene, unsigned n, unsigned gap_ms) {
    while (n-- > 0) {
        assert_true(demand(scene, scene->zone, scene->now_ms));
        note(scene, scene->now_ms);
        scene->now_ms += gap_ms;
    }
}

static void begin_new(scene_t *scene) { (void)scene; }

/* A full table, where the key has to evict another. */
static void begin_full(scene_t *scene) {
    for (uint64_t key = 100; key < 200; key++) {
        admits(scene->zone, &scene->policy, key, 1, 1, scene->now_ms);
    }
}

/* The same, but for places in spare lines. */
static void begin_spare(scene_t *scene) {
    fill_but_spare(scene->zone, &scene->policy, scene->limit, scene->limit, scene->now_ms);
}

static void begin_known_spare(scene_t *scene) {
    begin_spare(scene);
    admit(scene, 3, 0);
}

static void begin_known(scene_t *scene) { admit(scene, 3, 0); }

/* The ring has one place left, or none. */
static void begin_long(scene_t *scene) { admit(scene, RING_LENGTH - 1, 1); }

static void begin_longer(scene_t *scene) { admit(scene, RING_LENGTH + 1, 1); }

/* The same, but all of it is over when the work begins. */
static void begin_over(scene_t *scene) {
    begin_longer(scene);
    scene->admitted = 0;
    scene->now_ms += MINUTE_MS;
}

/* A used up key, whose time stamp wraps until `later_ms` are over. */
static void begin_idle(scene_t *scene) {
    admit(scene, scene->limit, 0);
    scene->admitted = 0;
}

/* The same, and the work is for another key, which may take its slot. */
static void begin_idle_victim(scene_t *scene) {
    begin_idle(scene);
    scene->claim = claim_of(scene->zone, &scene->policy, scene->victor, scene->limit, 1);
}

/* The same, in a table that is full. */
static void begin_idle_among_others(scene_t *scene) {
    begin_idle_victim(scene);

    for (uint64_t key = 100; key < 100 + PAIR_SLOTS - 1; key++) {
        assert_true(admits(scene->zone, &scene->policy, key, scene->limit, 1, scene->now_ms));
    }
}

/* What is given back is a closed event's: others came since. */
static void begin_charged_before(scene_t *scene) {
    scene->claim = acquire(scene->zone, &scene->policy, KEY, scene->limit, 1, scene->now_ms);
    assert_int_equal(scene->claim.outcome, Outcome::kAdmitted);
    scene->now_ms++;
    admit(scene, 3, 1);
}

static void begin_charged(scene_t *scene) {
    begin_known(scene);
    scene->claim = acquire(scene->zone, &scene->policy, KEY, scene->limit, 1, scene->now_ms);
    assert_int_equal(scene->claim.outcome, Outcome::kAdmitted);
}

static void work_acquire(scene_t *scene) {
    limit_sliding::acquire(&scene->claim, 1, scene->now_ms);
}

static void work_release(scene_t *scene) {
    limit_sliding::release(&scene->claim, 1, scene->now_ms);
}

static void work_describe(scene_t *scene) {
    Verdict verdict;

    verdict = scene->claim.describe(scene->now_ms);
    scene->told = verdict.remaining;
}

/* The first part has all slots of a zone this small. */
static void work_sweep(scene_t *scene) {
    scene->zone->sweep(scene->policy, scene->now_ms, scene->limit, 0, scene->bytes);
}

static void begin(scene_t *scene) {
    void *memory = step_begin(scene->bytes);

    scene->policy = evicting(MINUTE_MS);
    scene->policy.algorithm = scene->algorithm;
    scene->zone = Zone::init(memory, scene->bytes, scene->policy, 0, test_secret);
    scene->now_ms = NOW_MS + scene->start_ms;
    scene->admitted = 0;
    scene->limit = scene->limit != 0 ? scene->limit : TIMES_MAX;
    scene->claim = claim_of(scene->zone, &scene->policy, KEY, scene->limit, 1);
    scene->begin(scene);
    scene->now_ms += scene->later_ms;

    memset(&run, 0, sizeof(run));
    run.scene = scene;
    run.memory = (uint8_t *)make_zone_for(&scene->policy, scene->bytes);
    memcpy(run.memory, scene->zone, scene->bytes);
}

static void end(scene_t *scene) {
    step_end();
    free(run.memory);

    if (run.wrong != 0) {
        fail_msg("wrong %u times, the last at access %u, %u left, %u before", run.wrong,
                 run.wrong_at, run.wrong_rest, scene->limit - scene->admitted);
    }
}

/* ---- deaths ---- */

/* A death is as good as any other that leaves the same memory behind. */
static void die(void) {
    scene_t *scene = run.scene;
    size_t bytes = scene->bytes;
    Zone *left;
    unsigned rest;

    if (memcmp(run.memory, scene->zone, bytes) == 0) { return; }

    memcpy(run.memory, scene->zone, bytes);
    run.deaths++;

    left = make_zone_for(&scene->policy, bytes);
    memcpy(left, run.memory, bytes);
    rest = rest_of(scene, left);
    free(left);

    /* whether the work is done nobody knows */

    if (rest + scene->admitted > scene->limit || rest + scene->admitted + 1 < scene->limit) {
        wrong(rest);
    }
}

static void check_deaths(scene_t scene) {
    begin(&scene);
    work_in_steps(&scene, die);
    assert_true(run.deaths > 0);
    end(&scene);
}

/* ---- stalls ---- */

static uint64_t other_key(unsigned i) { return 1000 + i; }

/* What happens while the work stands still. */
static void others(void) {
    scene_t *scene = run.scene;

    scene->now_ms += scene->pause_ms;
    scene->now_ms -= scene->behind_ms;

    if (scene->is_swept) { work_sweep(scene); }
    if (scene->is_forgotten) {
        claim_of(scene->zone, &scene->policy, KEY, scene->limit, 1).forget(scene->now_ms);
    }

    for (unsigned i = 0; i < scene->other_keys; i++) {
        admits(scene->zone, &scene->policy, other_key(i), scene->limit, 1, scene->now_ms);
    }

    for (unsigned i = 0; i < scene->others; i++) {
        scene->now_ms++;

        if (demand(scene, scene->zone, scene->now_ms)) { note(scene, scene->now_ms); }
    }
}

/* A log forgets each unit a window after it came, whatever became of it. */
static void check_times(scene_t *scene) {
    for (unsigned i = 0; i < scene->admitted; i++) {
        uint64_t then_ms = scene->times_ms[i];
        uint32_t left = scene->limit;

        for (unsigned j = 0; j < scene->admitted; j++) {
            left -= scene->times_ms[j] > then_ms;
        }

        if (remaining_of(scene->zone, &scene->policy, KEY, scene->limit, then_ms + MINUTE_MS)
            != left) {
            wrong(left);
        }
    }
}

/* Of a log's mark the lower bits are the tick, which is a time here. */
static uint64_t recorded_ms(scene_t *scene, uint64_t start_ms) {
    uint64_t mask = (1ull << 36) - 1;

    return scene->algorithm == Algorithm::kLog ? start_ms + ((scene->claim.state - start_ms) & mask)
                                               : start_ms;
}

/* The work is done; is all that was admitted on record, and nothing else? */
static void check_record(scene_t *scene, uint64_t start_ms) {
    unsigned rest;

    if (scene->claim.outcome == Outcome::kAdmitted) { note(scene, recorded_ms(scene, start_ms)); }

    if (scene->algorithm == Algorithm::kLog) { check_times(scene); }

    rest = rest_of(scene, scene->zone);

    if (rest + scene->admitted != scene->limit) { wrong(rest); }
}

/* The work for another key is done; is all that the key was admitted on record? */
static void check_returned(scene_t *scene, uint64_t start_ms) {
    (void)start_ms;

    unsigned rest = rest_of(scene, scene->zone);

    if (rest + scene->admitted != scene->limit) { wrong(rest); }
}

/* The work for another key is done; has the key, by the clock of others, what it had? */
static void check_left(scene_t *scene, uint64_t start_ms) {
    unsigned rest = rest_of(scene, scene->zone);

    /* after the last access of all nobody came */
    if (scene->now_ms < start_ms && rest != scene->left) { wrong(rest); }
}

/* What was told must have been so before the others or after them. */
static void check_told(scene_t *scene, uint64_t start_ms) {
    (void)start_ms;

    if (scene->told != scene->limit - scene->admitted
        && scene->told != scene->limit - scene->admitted + scene->others) {
        wrong(scene->told);
    }
}

/* The work is done; do other keys have what they had, and no more? */
static void check_other_keys(scene_t *scene, uint64_t start_ms) {
    /* after the last access of all nobody came */
    unsigned n = step.accesses >= step.stop_at ? scene->other_keys : 0;

    (void)start_ms;

    for (unsigned i = 0; i < n; i++) {
        uint32_t left
            = remaining_of(scene->zone, &scene->policy, other_key(i), scene->limit, scene->now_ms);

        if (left != scene->limit - 1
            || !admits(scene->zone, &scene->policy, other_key(i), scene->limit, left, scene->now_ms)
            || admits(scene->zone, &scene->policy, other_key(i), scene->limit, 1, scene->now_ms)) {
            wrong(left);
        }
    }
}

static void check_stalls(scene_t scene, void (*check)(scene_t *scene, uint64_t start_ms)) {
    scene_t start;

    begin(&scene);
    start = scene;

    do {
        scene = start;
        memcpy(scene.zone, run.memory, scene.bytes);

        run.scene = &scene;
        step.stop_at++;
        work_in_steps(&scene, NULL);
        check(&scene, start.now_ms);
    } while (step.accesses >= step.stop_at);

    assert_true(step.stop_at > 3);
    end(&scene);
}

/* ---- what is stopped ---- */

static void test_death_of_a_word(void **state) {
    static const Algorithm algorithms[]
        = {Algorithm::kCounter, Algorithm::kFixed, Algorithm::kTokenBucket};

    (void)state;

    for (size_t i = 0; i < LENGTH(algorithms); i++) {
        scene_t scene = {.algorithm = algorithms[i], .bytes = PAIR_BYTES, .work = work_acquire};

        scene.begin = begin_new;
        check_deaths(scene);
        scene.begin = begin_full;
        check_deaths(scene);
        scene.begin = begin_known;
        check_deaths(scene);
        scene.begin = begin_charged;
        scene.work = work_release;
        check_deaths(scene);

        scene.bytes = SPARE_ZONE_BYTES;
        scene.work = work_acquire;
        scene.begin = begin_spare;
        check_deaths(scene);
        scene.begin = begin_known_spare;
        check_deaths(scene);
    }
}

static void test_death_of_a_log(void **state) {
    scene_t scene = {.algorithm = Algorithm::kLog, .work = work_acquire};

    (void)state;

    scene.bytes = RING_PAIR_BYTES;
    scene.begin = begin_new;
    check_deaths(scene);
    scene.begin = begin_full;
    check_deaths(scene);
    scene.begin = begin_known;
    check_deaths(scene);
    scene.later_ms = 1;
    check_deaths(scene);

    scene.bytes = RINGS_BYTES;
    scene.begin = begin_long;
    check_deaths(scene);
    scene.begin = begin_longer;
    check_deaths(scene);

    scene.later_ms = 0;
    scene.begin = begin_charged;
    scene.work = work_release;
    check_deaths(scene);
}

/* Whoever brings a slot up to date must not leave an old time stamp in it. */
static void test_death_after_years(void **state) {
    scene_t scene = {.bytes = PAIR_BYTES,
                     .begin = begin_idle,
                     .work = work_acquire,
                     .later_ms = (1ull << 18) * MINUTE_MS};

    (void)state;

    scene.algorithm = Algorithm::kCounter;
    check_deaths(scene);

    scene.algorithm = Algorithm::kLog;
    scene.bytes = RING_PAIR_BYTES;
    scene.later_ms = 1ull << 36;
    check_deaths(scene);
}

static void test_stall_of_a_word(void **state) {
    scene_t scene = {
        .algorithm = Algorithm::kCounter, .bytes = PAIR_BYTES, .work = work_acquire, .others = 2};

    (void)state;

    scene.begin = begin_new;
    check_stalls(scene, check_record);
    scene.begin = begin_full;
    check_stalls(scene, check_record);
    scene.begin = begin_known;
    check_stalls(scene, check_record);

    scene.bytes = SPARE_ZONE_BYTES;
    scene.begin = begin_spare;
    check_stalls(scene, check_record);
    scene.begin = begin_known_spare;
    check_stalls(scene, check_record);
}

/* Others may put so many events that the ring is the same but for its laps. */
static void test_stall_of_a_log(void **state) {
    static const unsigned others[] = {1, RING_LENGTH + 4, 2 * RING_LENGTH, 2 * RING_LENGTH + 4};
    scene_t scene
        = {.algorithm = Algorithm::kLog, .bytes = RINGS_BYTES, .work = work_acquire, .later_ms = 1};

    (void)state;

    for (size_t i = 0; i < LENGTH(others); i++) {
        scene.others = others[i];
        scene.begin = begin_new;
        check_stalls(scene, check_record);
        scene.begin = begin_known;
        check_stalls(scene, check_record);
        scene.begin = begin_longer;
        check_stalls(scene, check_record);
    }

    /* all that is left is for the others */

    for (size_t i = 1; i < LENGTH(others); i++) {
        scene.others = others[i];
        scene.limit = others[i];
        scene.begin = begin_over;
        scene.work = work_acquire;
        check_stalls(scene, check_record);
        scene.work = work_describe;
        check_stalls(scene, check_told);
    }
}

/* Who takes the slot of a key that was idle for long must see it return. */
static void test_stall_while_an_idle_key_returns(void **state) {
    (void)state;

    for (uint64_t key = 1; key <= 8; key++) {
        check_stalls({.bytes = PAIR_BYTES,
                      .begin = begin_idle_victim,
                      .work = work_acquire,
                      .later_ms = (1ull << 18) * MINUTE_MS,
                      .victor = 1000 + key,
                      .others = 2},
                     check_returned);
    }
}

/* Clocks of workers differ by milliseconds: the use of a key counts for one of them, and is
 * over for another, who wants a slot.  A worker whose clock is behind counts in the same
 * window. */
static void test_stall_of_a_clock_ahead(void **state) {
    const struct {
        Algorithm algorithm;
        uint64_t later_ms; /* the first ms in which the use is over */
        uint32_t left;     /* a few ms earlier, of 7 */
    } kinds[] = {{Algorithm::kCounter, 2 * MINUTE_MS - 1, 6},
                 {Algorithm::kFixed, MINUTE_MS - 1, 0},
                 {Algorithm::kTokenBucket, MINUTE_MS, 6}};

    (void)state;

    for (const auto &kind : kinds) {
        for (uint64_t key = 1; key <= 8; key++) {
            check_stalls({.algorithm = kind.algorithm,
                          .bytes = PAIR_BYTES,
                          .begin = begin_idle_among_others,
                          .work = work_acquire,
                          .later_ms = kind.later_ms,
                          .victor = 1000 + key,
                          .behind_ms = 3,
                          .limit = 7,
                          .left = kind.left},
                         check_left);
        }

        for (auto begin_it : {begin_new, begin_full, begin_known}) {
            check_stalls({.algorithm = kind.algorithm,
                          .bytes = PAIR_BYTES,
                          .begin = begin_it,
                          .work = work_acquire,
                          .start_ms = 10,
                          .others = 2,
                          .behind_ms = 5},
                         check_record);
        }
    }
}

/* What a key that was idle for long has used is over, but not what it uses since. */
static void test_stall_while_own_key_returns(void **state) {
    (void)state;

    for (Algorithm a : {Algorithm::kCounter, Algorithm::kFixed, Algorithm::kTokenBucket}) {
        check_stalls({.algorithm = a,
                      .bytes = PAIR_BYTES,
                      .begin = begin_idle,
                      .work = work_acquire,
                      .later_ms = (1ull << 18) * MINUTE_MS,
                      .others = 2},
                     check_record);
    }
}

/* A sweep withdraws what a key that was idle for long has used, but not what it uses since,
 * whichever of the two stands still; nor does a sweep that dies. */
static void test_stall_of_a_sweep(void **state) {
    (void)state;

    for (Algorithm a :
         {Algorithm::kCounter, Algorithm::kFixed, Algorithm::kTokenBucket, Algorithm::kLog}) {
        scene_t scene
            = {.algorithm = a,
               .bytes = a == Algorithm::kLog ? (size_t)RING_PAIR_BYTES : (size_t)PAIR_BYTES,
               .begin = begin_idle,
               .work = work_sweep,
               .later_ms = a == Algorithm::kLog ? 1ull << 36 : (1ull << 18) * MINUTE_MS,
               .limit = 7};

        check_deaths(scene);

        scene.others = 2;
        check_stalls(scene, check_returned);

        scene.work = work_acquire;
        scene.is_swept = true;
        check_stalls(scene, check_record);
    }
}

/*
 * Other keys take the slots that the work is about to write to, be it that they
 * hold nothing yet or that all they hold is over.
 */
static void test_stall_while_other_keys_come(void **state) {
    static const uint64_t pauses_ms[] = {0, MINUTE_MS + 1000};
    scene_t scene = {.algorithm = Algorithm::kLog,
                     .bytes = RINGS_BYTES,
                     .work = work_acquire,
                     .later_ms = 1,
                     .other_keys = 60};

    (void)state;

    for (size_t i = 0; i < LENGTH(pauses_ms); i++) {
        scene.pause_ms = pauses_ms[i];
        scene.begin = begin_new;
        check_stalls(scene, check_other_keys);
        scene.begin = begin_long;
        check_stalls(scene, check_other_keys);
        scene.begin = begin_longer;
        check_stalls(scene, check_other_keys);
    }

    scene.pause_ms = 0;
    scene.begin = begin_charged_before;
    scene.work = work_release;

    /* a credit's place in its slot depends on the time */

    for (unsigned i = 0; i < RING_LENGTH; i++) {
        scene.start_ms = i * MINUTE_MS / 64;
        check_stalls(scene, check_other_keys);
    }
}

static void come(void) {
    scene_t *scene = run.scene;

    admits(scene->zone, &scene->policy, other_key(0), scene->limit, 1, scene->now_ms);
}

static void come_and_die(void) { run.is_whole |= !step_other_dies(come, run.die_at); }

/* A slot that a dead worker has claimed goes to another key once the tag is two epochs old, before
 * that of any key that counts. */
static void test_slot_of_a_dead_worker(void **state) {
    constexpr uint64_t kFirst = 100, kEnd = kFirst + PAIR_SLOTS - 1;
    int is_dead = 1;

    (void)state;

    for (unsigned changes = 1; is_dead; changes++) {
        scene_t scene = {.algorithm = Algorithm::kCounter, .bytes = PAIR_BYTES, .begin = begin_new};
        begin(&scene);

        const auto admit_others = [&] {
            for (uint64_t key = kFirst; key < kEnd; key++) {
                assert_true(admits(scene.zone, &scene.policy, key, scene.limit, 1, scene.now_ms));
            }
        };

        admit_others();
        is_dead = step_other_dies(come, changes);
        scene.now_ms += (1ull << 18) * MINUTE_MS;
        admit_others();
        assert_true(admits(scene.zone, &scene.policy, KEY, scene.limit, 1, scene.now_ms));
        assert_int_equal(stats_of(scene.zone).evicted, 0);

        for (uint64_t key = kFirst; key < kEnd; key++) {
            assert_int_equal(
                remaining_of(scene.zone, &scene.policy, key, scene.limit, scene.now_ms),
                scene.limit - 1);
        }

        end(&scene);
    }
}

/* Another key's worker dies after each of its changes, while ours stands. */
static void check_stalls_and_deaths(scene_t scene) {
    scene_t start;

    begin(&scene);
    start = scene;

    do {
        step.stop_at++;
        run.die_at = 0;
        run.is_whole = 0;

        do {
            scene = start;
            memcpy(scene.zone, run.memory, scene.bytes);

            run.scene = &scene;
            run.die_at++;
            step.after = NULL;
            step.stopped = come_and_die;
            STEP_THROUGH(scene.work(&scene));
            assert_int_equal(stats_of(scene.zone).evicted, 0);
            check_record(&scene, start.now_ms);
        } while (step.accesses >= step.stop_at && !run.is_whole);
    } while (step.accesses >= step.stop_at);

    assert_true(step.stop_at > 3);
    end(&scene);
}

/* The slot of the key goes to another key, or the key is deleted, while its first event is under
 * way: the event is on record nevertheless. */
static void test_stall_while_own_slot_is_lost(void **state) {
    scene_t scene = {.algorithm = Algorithm::kLog,
                     .bytes = RING_PAIR_BYTES,
                     .begin = begin_over,
                     .work = work_acquire,
                     .later_ms = SECOND_MS};

    (void)state;

    scene.other_keys = 60;
    check_stalls(scene, check_record);
    scene.other_keys = 0;
    scene.is_forgotten = true;
    check_stalls(scene, check_record);
}

/* A slot that is over may be taken, but not once it is used again. */
static void test_stall_while_own_slot_is_taken(void **state) {
    scene_t scene = {.algorithm = Algorithm::kLog,
                     .bytes = RING_PAIR_BYTES,
                     .work = work_acquire,
                     .later_ms = 1};

    (void)state;

    scene.begin = begin_new;
    check_stalls_and_deaths(scene);
    scene.begin = begin_over;
    scene.later_ms = SECOND_MS;
    check_stalls_and_deaths(scene);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death_of_a_word),
        cmocka_unit_test(test_death_of_a_log),
        cmocka_unit_test(test_death_after_years),
        cmocka_unit_test(test_stall_of_a_word),
        cmocka_unit_test(test_stall_of_a_log),
        cmocka_unit_test(test_stall_while_an_idle_key_returns),
        cmocka_unit_test(test_stall_while_own_key_returns),
        cmocka_unit_test(test_stall_of_a_sweep),
        cmocka_unit_test(test_stall_of_a_clock_ahead),
        cmocka_unit_test(test_stall_while_other_keys_come),
        cmocka_unit_test(test_slot_of_a_dead_worker),
        cmocka_unit_test(test_stall_while_own_slot_is_lost),
        cmocka_unit_test(test_stall_while_own_slot_is_taken),
    };

    return cmocka_run_group_tests_name("step", tests, NULL, NULL);
}
