/* Copyright (C) the limit_sliding authors */

/* Units that a node is to tell Redis of: exactly those that were added are told. */

#include "support.hpp"

#include "redis/shared/outbox.hpp"

#include "processes.hpp"

using namespace limit_sliding;

#define NOW_MS 1000000ull
#define INTERVAL_MS 100
#define MOST_MS 3000
#define BYTES(sets) (64 + 256 * (sets))

typedef Outbox::Added Added;
typedef Outbox::Took Took;

static Outbox *make(size_t sets) { return Outbox::init(share<Outbox>(BYTES(sets)), BYTES(sets)); }

static Added add(Outbox *outbox, uint64_t hash, int64_t units, uint64_t now_ms, uint64_t *due) {
    return outbox->add(hash, units, now_ms, INTERVAL_MS, due);
}

/* The last reports of the keys. */
static Outbox::Report reports[10];

static Took take(Outbox *outbox, uint64_t hash, uint64_t now_ms, int64_t *units) {
    uint64_t due_ms;
    Outbox::Report report;
    const Took took = outbox->take(hash, now_ms, MOST_MS, false, 1000 + hash, &report, &due_ms);

    if (took == Took::kTaken) {
        reports[hash] = report;
        *units = report.units;
    }
    return took;
}

static void expect_taken(Outbox *outbox, uint64_t hash, uint64_t now_ms, int64_t expected) {
    int64_t units = 0;

    assert_int_equal(take(outbox, hash, now_ms, &units), Took::kTaken);
    assert_int_equal(units, expected);
}

/* Ends the last report of the key: so many units are left. */
static Added done(Outbox *outbox, uint64_t hash, uint64_t now_ms, int64_t units, uint64_t wait_ms,
                  uint64_t *due_ms) {
    const Outbox::Report &report = reports[hash];
    const int64_t told = report.units - units;

    (void)outbox->acknowledge(hash, report, report.acked + told);
    return outbox->done(hash, now_ms, report,
                        {told, false, now_ms + INTERVAL_MS, wait_ms, now_ms, false}, due_ms);
}

static void sends_once_an_interval(void **state) {
    Outbox *outbox = make(4);
    uint64_t due = 0;
    int64_t units;

    (void)state;

    /* the first unit is due at once, others have a sender */
    assert_int_equal(add(outbox, 7, 1, NOW_MS, &due), Added::kSend);
    assert_int_equal(due, NOW_MS);
    assert_int_equal(add(outbox, 7, 2, NOW_MS, &due), Added::kDone);
    assert_int_equal(outbox->units(7), 3);
    expect_taken(outbox, 7, NOW_MS, 3);

    /* nothing is taken while they are under way */
    assert_int_equal(add(outbox, 7, 4, NOW_MS + 1, &due), Added::kDone);
    assert_int_equal(take(outbox, 7, NOW_MS + 1, &units), Took::kNothing);
    assert_int_equal(done(outbox, 7, NOW_MS + 2, 0, 0, &due), Added::kSend);
    assert_int_equal(due, NOW_MS + 2 + INTERVAL_MS);
    assert_int_equal(take(outbox, 7, NOW_MS + 50, &units), Took::kLater);
    expect_taken(outbox, 7, due, 4);

    /* what came after an answer waits for the rest of the interval */
    assert_int_equal(done(outbox, 7, NOW_MS + 103, 0, 0, &due), Added::kDone);
    assert_int_equal(add(outbox, 7, 1, NOW_MS + 150, &due), Added::kSend);
    assert_int_equal(due, NOW_MS + 103 + INTERVAL_MS);
    assert_int_equal(add(outbox, 7, 1, NOW_MS + 150, &due), Added::kDone);
    expect_taken(outbox, 7, due, 2);

    /* also by a worker whose clock is behind that of the one which has sent */
    assert_int_equal(done(outbox, 7, NOW_MS + 203, 0, 0, &due), Added::kDone);
    assert_int_equal(add(outbox, 7, 1, NOW_MS + 10, &due), Added::kSend);
    assert_int_equal(due, NOW_MS + 203 + INTERVAL_MS);
    expect_taken(outbox, 7, due, 1);
}

static void keeps_what_has_no_room(void **state) {
    Outbox *outbox = make(4);
    uint64_t due = 0;

    (void)state;

    add(outbox, 7, 5, NOW_MS, &due);
    expect_taken(outbox, 7, NOW_MS, 5);
    assert_int_equal(done(outbox, 7, NOW_MS, 2, 30000, &due), Added::kSend);
    assert_int_equal(due, NOW_MS + 30000);
    assert_int_equal(outbox->units(7), 2);

    /* new units do not wait for that */
    assert_int_equal(add(outbox, 7, 1, NOW_MS + 500, &due), Added::kSend);
    assert_int_equal(due, NOW_MS + 500 + INTERVAL_MS);
    assert_int_equal(outbox->subtract(7, 1), 1);
    expect_taken(outbox, 7, due, 2);
    assert_int_equal(outbox->subtract(7, 3), 2);
    assert_int_equal(outbox->subtract(7, 1), 0);
}

/* Units that are given back while their report is under way are told by the next one, as are units
 * that were told before. */
static void tells_refunds(void **state) {
    Outbox *outbox = make(4);
    uint64_t due = 0;

    (void)state;

    add(outbox, 7, 5, NOW_MS, &due);
    expect_taken(outbox, 7, NOW_MS, 5);
    assert_int_equal(add(outbox, 7, -4, NOW_MS + 1, &due), Added::kDone);
    assert_int_equal(outbox->units(7), 1);
    assert_int_equal(done(outbox, 7, NOW_MS + 2, 0, 30000, &due), Added::kSend);
    assert_int_equal(due, NOW_MS + 2 + INTERVAL_MS);
    expect_taken(outbox, 7, due, -4);
    assert_int_equal(reports[7].acked, 5);
    assert_int_equal(done(outbox, 7, due, 0, 0, &due), Added::kDone);

    assert_int_equal(add(outbox, 7, -1, due, &due), Added::kSend);
    expect_taken(outbox, 7, due, -1);
    assert_int_equal(reports[7].acked, 1);
    assert_int_equal(outbox->subtract(7, 1), 0);
}

/* A report without a reply is sent again, with the units that came since.  Of two replies, the
 * second one is too late, whatever it acknowledges. */
static void acknowledges_once(void **state) {
    Outbox *outbox = make(4);
    uint64_t due = 0;

    (void)state;

    add(outbox, 7, 5, NOW_MS, &due);
    expect_taken(outbox, 7, NOW_MS, 5);
    const Outbox::Report first = reports[7];
    assert_int_equal(first.life, 1007);
    add(outbox, 7, 2, NOW_MS + MOST_MS + 1, &due);
    expect_taken(outbox, 7, NOW_MS + MOST_MS + 1, 7);
    const Outbox::Report second = reports[7];
    assert_int_equal(second.life, first.life);
    assert_int_equal(second.acked, 0);

    assert_true(outbox->acknowledge(7, second, 6));
    assert_false(outbox->acknowledge(7, second, 6));
    assert_false(outbox->acknowledge(7, first, 5));
    assert_false(outbox->acknowledge(7, {first.life + 1, 6, 1}, 7));
    assert_int_equal(outbox->done(7, due, second, {6, false, due, 0, due, false}, &due),
                     Added::kSend);
    expect_taken(outbox, 7, due, 1);
    assert_int_equal(reports[7].acked, 6);
}

/* The worker that adds to the units of one that exits reports them at once. */
static void leaves_units_to_the_next(void **state) {
    Outbox *outbox = make(4);
    uint64_t due = 0;

    (void)state;

    add(outbox, 7, 5, NOW_MS, &due);
    expect_taken(outbox, 7, NOW_MS, 5);
    assert_int_equal(
        outbox->done(7, NOW_MS, reports[7], {4, false, NOW_MS + 9000, 0, NOW_MS, true}, &due),
        Added::kSend);
    assert_int_equal(add(outbox, 7, 1, NOW_MS + 1, &due), Added::kSend);
    assert_int_equal(due, NOW_MS + 1);
    expect_taken(outbox, 7, NOW_MS + 1, 2);
}

static void looks_at_a_pace(void **state) {
    Outbox *outbox = make(4);
    uint64_t due = 0;
    const Outbox::Rest rest = {0, false, NOW_MS + INTERVAL_MS, 0, NOW_MS + 1000, false};

    (void)state;

    assert_int_equal(outbox->look(7, NOW_MS, INTERVAL_MS, &due), Added::kSend);
    assert_int_equal(due, NOW_MS);
    assert_int_equal(outbox->look(7, NOW_MS, INTERVAL_MS, &due), Added::kDone);
    expect_taken(outbox, 7, NOW_MS, 0);
    assert_int_equal(outbox->done(7, NOW_MS, reports[7], rest, &due), Added::kDone);
    assert_int_equal(outbox->look(7, NOW_MS + 999, INTERVAL_MS, &due), Added::kDone);
    assert_int_equal(outbox->look(7, NOW_MS + 1000, INTERVAL_MS, &due), Added::kSend);
    assert_int_equal(due, NOW_MS + 1000);

    /* a call that is under way will tell, unless whoever made it is gone */
    const uint64_t end_ms = NOW_MS + 1000 + MOST_MS;
    expect_taken(outbox, 7, NOW_MS + 1000, 0);
    assert_int_equal(outbox->look(7, end_ms, INTERVAL_MS, &due), Added::kDone);
    assert_int_equal(outbox->look(7, end_ms + 1, INTERVAL_MS, &due), Added::kSend);
    assert_int_equal(due, end_ms + 1);
}

static void replaces_a_sender_that_is_gone(void **state) {
    Outbox *outbox = make(4);
    uint64_t due = 0;

    (void)state;

    add(outbox, 7, 1, NOW_MS, &due);
    assert_int_equal(add(outbox, 7, 1, NOW_MS + 1000, &due), Added::kDone);
    assert_int_equal(add(outbox, 7, 1, NOW_MS + 1001, &due), Added::kSend);
    assert_int_equal(add(outbox, 7, 1, NOW_MS + 1001, &due), Added::kDone);
    expect_taken(outbox, 7, NOW_MS + 1001, 4);

    /* and one that has died with a report under way, of which nothing is lost */
    assert_int_equal(add(outbox, 7, 1, NOW_MS + 1001 + MOST_MS, &due), Added::kDone);
    assert_int_equal(add(outbox, 7, 1, NOW_MS + 1002 + MOST_MS, &due), Added::kSend);
    expect_taken(outbox, 7, NOW_MS + 1002 + MOST_MS, 6);
}

/* A key that has rested for as long as times are told apart, more or less. */
static void does_not_wait_after_a_rest(void **state) {
    Outbox *outbox = make(4);
    uint64_t due = 0;

    (void)state;

    for (uint64_t rest_ms = 1000; rest_ms < 9000000; rest_ms += 777) {
        const uint64_t now_ms = NOW_MS + 20000000 * (rest_ms / 777) + rest_ms;

        add(outbox, 7, 1, now_ms - rest_ms, &due);
        expect_taken(outbox, 7, due, 1);
        done(outbox, 7, due, 0, 0, &due);
        assert_int_equal(add(outbox, 7, 1, now_ms, &due), Added::kSend);
        assert_in_range(due, now_ms, now_ms + INTERVAL_MS);
        expect_taken(outbox, 7, due, 1);
        done(outbox, 7, due, 0, 0, &due);
    }
}

static void tells_keys_apart(void **state) {
    Outbox *outbox = make(1);
    uint64_t due = 0;
    int64_t units;

    (void)state;

    for (int64_t key = 1; key < 5; key++) {
        assert_int_equal(add(outbox, key, key, NOW_MS, &due), Added::kSend);
    }

    /* all are in use */
    assert_int_equal(add(outbox, 5, 1, NOW_MS, &due), Added::kFull);
    assert_int_equal(outbox->look(5, NOW_MS, INTERVAL_MS, &due), Added::kDone);
    assert_int_equal(outbox->units(5), 0);

    /* the key that has rested longest makes room */
    for (int64_t key = 1; key < 5; key++) {
        expect_taken(outbox, key, NOW_MS, key);
        outbox->set_seen(key, {100 + key, 0, 1, NOW_MS, 1, 1});
        done(outbox, key, NOW_MS + (key ^ 3), 0, 0, &due);
    }
    assert_int_equal(add(outbox, 5, 9, NOW_MS + 200, &due), Added::kSend);
    assert_int_equal(outbox->seen(5, NOW_MS).at_ms, 0);
    assert_int_equal(outbox->seen(3, NOW_MS).at_ms, 0);
    assert_int_equal(outbox->seen(4, NOW_MS).others, 104);
    expect_taken(outbox, 5, NOW_MS + 200, 9);
    assert_int_equal(reports[5].life, 1005);
    assert_int_equal(reports[5].acked, 0);

    /* units have 36 bits */
    for (int64_t sign : {1, -2}) {
        for (unsigned i = 0; i < 8; i++) {
            assert_int_not_equal(add(outbox, 1, sign * UINT32_MAX, NOW_MS + 300, &due),
                                 Added::kFull);
        }
        assert_int_equal(add(outbox, 1, sign * 8, NOW_MS + 300, &due), Added::kFull);
    }
    expect_taken(outbox, 1, NOW_MS + 300, -8ll * UINT32_MAX);

    /* the report of a key that has no entry any more ends */
    assert_int_equal(done(outbox, 3, NOW_MS, 1, 0, &due), Added::kDone);
    assert_int_equal(take(outbox, 3, NOW_MS, &units), Took::kNothing);
}

static void forgets_calls_that_never_end(void **state) {
    Outbox *outbox = make(1);
    uint64_t due = 0;

    (void)state;

    for (uint64_t key = 1; key < 5; key++) {
        add(outbox, key, 1, NOW_MS, &due);
        expect_taken(outbox, key, NOW_MS, 1);
    }
    const uint64_t end_ms = NOW_MS + MOST_MS + 10000;
    assert_int_equal(add(outbox, 5, 1, end_ms, &due), Added::kFull);

    /* what is seen of a key without an entry is not remembered, and its call may end */
    outbox->set_seen(5, {12, 0, 1, NOW_MS, 1, 1});
    assert_int_equal(outbox->seen(5, NOW_MS).at_ms, 0);
    assert_int_equal(done(outbox, 5, NOW_MS, 0, 0, &due), Added::kDone);

    /* the entry of a key whose units a worker tells stays */
    add(outbox, 1, 1, end_ms, &due);
    for (uint64_t key = 5; key < 8; key++) {
        assert_int_equal(add(outbox, key, 1, end_ms + 1, &due), Added::kSend);
    }
    assert_int_equal(add(outbox, 8, 1, end_ms + 1, &due), Added::kFull);
    assert_int_equal(outbox->units(1), 2);
}

/* Units whose sender has gone stay for ten seconds, unless their key returns. */
static void evicts_units_that_nobody_sends(void **state) {
    Outbox *outbox = make(1);
    uint64_t due = 0, evicted = 9;

    (void)state;

    for (uint64_t key = 1; key < 5; key++) {
        add(outbox, key, 10 + key % 4, NOW_MS, &due);
    }

    assert_int_equal(add(outbox, 5, 1, NOW_MS + 10000, &due), Added::kFull);
    assert_int_equal(outbox->look(5, NOW_MS + 10000, INTERVAL_MS, &due), Added::kDone);
    assert_int_equal(add(outbox, 3, 1, NOW_MS + 10000, &due), Added::kSend);

    /* the fewest units first */
    const uint64_t now_ms = NOW_MS + 10001;
    assert_int_equal(outbox->add(5, 1, now_ms, INTERVAL_MS, &due, &evicted), Added::kSend);
    assert_int_equal(evicted, 10);
    assert_int_equal(outbox->units(4), 0);
    assert_int_equal(outbox->look(6, now_ms, INTERVAL_MS, &due, &evicted), Added::kSend);
    assert_int_equal(evicted, 11);
    expect_taken(outbox, 5, now_ms, 1);
    assert_int_equal(done(outbox, 5, now_ms, 0, 0, &due), Added::kDone);

    /* keys without units first */
    assert_int_equal(outbox->add(7, 1, now_ms, INTERVAL_MS, &due, &evicted), Added::kSend);
    assert_int_equal(evicted, 0);
    assert_int_equal(outbox->units(2), 12);
    assert_int_equal(outbox->units(3), 14);
}

static void remembers_what_was_seen(void **state) {
    Outbox *outbox = make(4);
    uint64_t due = 0;

    (void)state;

    add(outbox, 7, 1, NOW_MS, &due);
    assert_int_equal(outbox->seen(7, NOW_MS).at_ms, 0);

    expect_taken(outbox, 7, NOW_MS, 1);
    outbox->set_seen(7, {-5, 9, 12345, NOW_MS, 128, 77});
    done(outbox, 7, NOW_MS, 0, 0, &due);

    auto seen = outbox->seen(7, NOW_MS + 70000);
    assert_int_equal(seen.others, -5);
    assert_int_equal(seen.added, 9);
    assert_int_equal(seen.reserved, 12345);
    assert_int_equal(seen.at_ms, NOW_MS);
    assert_int_equal(seen.share, 128);
    assert_int_equal(seen.pace, 77);

    outbox->set_seen(7, {1ll << 60, 1ull << 60, 1ull << 50, NOW_MS, 1ull << 50, 1ull << 50});
    seen = outbox->seen(7, NOW_MS);
    assert_int_equal(seen.others, 1ll << 60);
    assert_int_equal(seen.reserved, (1ull << 40) - 1);
    assert_int_equal(seen.share, 255);
    assert_int_equal(seen.pace, (1ull << 24) - 1);
}

/* ---- processes at a few keys, of which one is killed ---- */

#define KEYS 6
#define OPS 4000

/* The victim's clock is ahead of the others by so much that it takes over their units, but neither
 * ends their calls nor evicts their units. */
#define AHEAD_MS 2000u
#define CALL_MS 4000

struct shared_t {
    std::atomic_ullong added[KEYS];
    std::atomic_ullong taken[KEYS];
    std::atomic_uint started;
};

struct game_t {
    size_t sets;
    Outbox *outbox;
    shared_t *shared;
    unsigned round;
    uint64_t taken;
};

static void operate(game_t *game, unsigned self, uint64_t *random, uint64_t now_ms) {
    shared_t *shared = game->shared;
    const uint64_t key = random_below(random, KEYS);
    const uint64_t hash = 0x2345678912345678ull * (key + 1);
    const auto n = static_cast<int64_t>(1 + random_below(random, 9));
    uint64_t due;
    Outbox::Report report;

    switch (random_below(random, 3)) {
    case 0:
        if (game->outbox->add(hash, n, now_ms, 1, &due) != Added::kFull) {
            atomic_fetch_add(&shared->added[key], n);
        }
        return;
    case 1:
        /* a process that dies may have told what it has not noted */
        if (self == VICTIM) { return; }
        if (game->outbox->take(hash, now_ms, CALL_MS, false, 1, &report, &due) == Took::kTaken) {
            const auto told = static_cast<int64_t>(
                random_below(random, static_cast<uint64_t>(report.units) + 1));

            atomic_fetch_add(&shared->taken[key], static_cast<uint64_t>(told));
            (void)game->outbox->done(hash, now_ms, report,
                                     {told, false, now_ms + INTERVAL_MS, 0, now_ms, false}, &due);
        }
        return;
    default:
        (void)game->outbox->look(hash, now_ms, 1, &due);
    }
}

static void child(game_t *game, unsigned self) {
    uint64_t random = 1000ull * game->round + self;

    for (unsigned i = 0; i < OPS || self == VICTIM; i++) {
        operate(game, self, &random, NOW_MS + std::min(i / 4, AHEAD_MS));
    }
}

/* Takes the rest.  The units of the victim's last addition may have been added without
 * its having said so. */
static void audit(game_t *game) {
    for (uint64_t key = 0; key < KEYS; key++) {
        const uint64_t hash = 0x2345678912345678ull * (key + 1);
        uint64_t taken = game->shared->taken[key];
        const uint64_t added = game->shared->added[key];
        uint64_t due;
        Outbox::Report report;

        for (unsigned i = 0; i < 4; i++) {
            const uint64_t later_ms = NOW_MS + AHEAD_MS + CALL_MS + 500 * (i + 1);

            (void)game->outbox->look(hash, later_ms, 1, &due);
            if (game->outbox->take(hash, later_ms, 50, true, 1, &report, &due) == Took::kTaken) {
                taken += static_cast<uint64_t>(report.units);
                (void)game->outbox->done(hash, later_ms, report,
                                         {report.units, false, later_ms, 0, later_ms, false}, &due);
            }
        }

        if (taken < added || taken > added + 9) {
            fail_msg("round %u, key %u: %llu added, %llu taken", game->round, (unsigned)key,
                     (unsigned long long)added, (unsigned long long)taken);
        }
        game->taken += taken;
    }
}

static void play(size_t sets) {
    game_t game = {sets, share<Outbox>(BYTES(sets)), share<shared_t>(sizeof(shared_t)), 0, 0};

    for (; game.round < ROUNDS; game.round++) {
        new (game.shared) shared_t{};
        memset((void *)game.outbox, 0, BYTES(sets));
        Outbox::init(game.outbox, BYTES(sets));
        kill_one(game.round, &game.shared->started, [&](unsigned self) { child(&game, self); });
        audit(&game);
    }

    assert_in_range(game.taken, ROUNDS * 1000, UINT64_MAX);
}

static void takes_what_was_added(void **state) {
    (void)state;
    play(8);
}

/* More keys than entries, which are given to others all the time. */
static void takes_what_was_added_in_a_crowd(void **state) {
    (void)state;
    play(1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_once_an_interval),
        cmocka_unit_test(keeps_what_has_no_room),
        cmocka_unit_test(tells_refunds),
        cmocka_unit_test(acknowledges_once),
        cmocka_unit_test(leaves_units_to_the_next),
        cmocka_unit_test(looks_at_a_pace),
        cmocka_unit_test(replaces_a_sender_that_is_gone),
        cmocka_unit_test(does_not_wait_after_a_rest),
        cmocka_unit_test(tells_keys_apart),
        cmocka_unit_test(forgets_calls_that_never_end),
        cmocka_unit_test(evicts_units_that_nobody_sends),
        cmocka_unit_test(remembers_what_was_seen),
        cmocka_unit_test(takes_what_was_added),
        cmocka_unit_test(takes_what_was_added_in_a_crowd),
    };

    return cmocka_run_group_tests_name("outbox", tests, NULL, NULL);
}
