/* Copyright (C) the limit_sliding authors */

/*
 * Processes at a few places of bans, of which one is killed in the midst of it, in
 * every round at another instruction.
 */

#include "processes.hpp"

#include "core/facts/bans.hpp"

#define NOW_MS (1000 * DAY_MS)
#define OPS 3000
#define VICTIM_OPS 20000
#define BANNED 3
#define COUNTED 40

static const PenaltyRule banning = {DAY_MS, DAY_MS, MINUTE_MS, 1};
static const PenaltyRule counting = {DAY_MS, DAY_MS, MINUTE_MS, kPenaltyAfterMax};

struct shared_t {
    std::atomic_uint is_banned[BANNED]; /* after it was */
    std::atomic_uint started;
    std::atomic_uint is_working; /* the victim */
};

struct game_t {
    size_t bytes;
    Bans *bans;
    shared_t *shared;
    unsigned round;
    unsigned killed_at_work;
};

/* Keys below BANNED are banned by their first rejection, and the others never. */
static void check(game_t *game, uint64_t key) {
    const bool is_banned = key < BANNED && atomic_load(&game->shared->is_banned[key]) != 0;
    const uint64_t left_ms = game->bans->find(key, NOW_MS).left_ms;

    if (is_banned && left_ms == 0) { fail_msg("the ban of key %u is lost", (unsigned)key); }

    if (key >= BANNED && left_ms != 0) { fail_msg("key %u has another's ban", (unsigned)key); }
}

static void operate(game_t *game, uint64_t *random) {
    const uint64_t key = random_below(random, BANNED + COUNTED);

    check(game, key);

    if (key >= BANNED) {
        assert_int_equal(game->bans->reject(key, counting, NOW_MS).left_ms, 0);
    } else if (game->bans->reject(key, banning, NOW_MS).left_ms != 0) {
        atomic_store(&game->shared->is_banned[key], 1);
    }

    check(game, key);
}

static void child(game_t *game, unsigned self) {
    uint64_t random = 1000ull * game->round + self;

    for (unsigned i = 0; self == VICTIM; i++) {
        /* so few that no key is rejected as often as its ban needs */
        if (i == VICTIM_OPS) { pause(); }

        atomic_store(&game->shared->is_working, 1);
        operate(game, &random);
        atomic_store(&game->shared->is_working, 0);
    }

    for (unsigned i = 0; i < OPS; i++) {
        operate(game, &random);
    }
}

/* Bans are kept, and every place can be taken again. */
static void audit(game_t *game) {
    const PenaltyRule longer = {2 * DAY_MS, 2 * DAY_MS, MINUTE_MS, 1};

    game->killed_at_work += atomic_load(&game->shared->is_working);

    for (uint64_t key = 0; key < BANNED + COUNTED; key++) {
        check(game, key);
    }

    assert_int_equal(game->bans->banned(NOW_MS, UINT64_MAX), BANNED);

    for (uint64_t key = 1000; key < 1400; key++) {
        game->bans->reject(key, longer, NOW_MS);
    }

    assert_int_equal(game->bans->banned(NOW_MS, UINT64_MAX), game->bans->places());
}

static void play(game_t *game) {
    new (game->shared) shared_t{};
    memset(game->bans, 0, game->bytes);
    Bans::init(game->bans, game->bytes, test_secret);

    kill_one(game->round, &game->shared->started, [&](unsigned self) { child(game, self); });

    audit(game);
}

static void run(size_t lines) {
    game_t game = {};

    game.bytes = 64 + 64 * lines;
    game.shared = share<shared_t>(sizeof(*game.shared));
    game.bans = share<Bans>(game.bytes);

    for (game.round = 0; game.round < ROUNDS; game.round++) {
        play(&game);
    }

    munmap(game.bans, game.bytes);
    munmap(game.shared, sizeof(*game.shared));

    /* else the rounds say nothing */
    assert_in_range(game.killed_at_work, ROUNDS / 10, ROUNDS);
}

static void killed_at_one_line(void **state) {
    (void)state;

    run(1);
}

static void killed_at_some_lines(void **state) {
    (void)state;

    run(3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_one_line),
        cmocka_unit_test(killed_at_some_lines),
    };

    return cmocka_run_group_tests_name("bans fork", tests, NULL, NULL);
}
