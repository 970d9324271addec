/* Copyright (C) the limit_sliding authors */

/*
 * Processes at a few groups of leases, of which one is killed in the midst of
 * it, in every round at another instruction.
 */

#include "leases.hpp"
#include "processes.hpp"

#define KEYS 4
#define OPS 3000
#define UNITS 10
#define LIMIT 1000

struct shared_t {
    std::atomic_uint added[KEYS]; /* units, before they are */
    std::atomic_uint spent[KEYS]; /* after they were, less those to be returned */
    std::atomic_uint started;
    std::atomic_uint is_working; /* the victim */
};

struct game_t {
    size_t groups;
    uint64_t spread_ms; /* clocks, and times when Redis was asked, differ */

    Policy policy;
    Leases *leases;
    shared_t *shared;
    unsigned round;
    unsigned killed_at_work;
    uint64_t spent;
};

static const told_t told = {SERVER_MS, LIMIT, 900, 0};

static void add_units(game_t *game, uint64_t key, uint64_t sent_ms) {
    Claim claim = lease_claim(&game->policy, key, 1);

    atomic_fetch_add(&game->shared->added[key], UNITS);
    lease_add(game->leases, &claim, told, UNITS, sent_ms, sent_ms);
}

static void operate(game_t *game, uint64_t *random) {
    uint64_t key = random_below(random, KEYS);
    uint64_t now_ms = NOW_MS + random_below(random, game->spread_ms + 1);
    Claim claim = lease_claim(&game->policy, key, 1);

    if (random_below(random, 4) == 0) {
        add_units(game, key, now_ms);
        return;
    }

    if (!lease_spend(game->leases, &claim, now_ms)) { return; }

    if (random_below(random, 3) == 0) {
        game->leases->give_back(claim, now_ms);
        return;
    }

    atomic_fetch_add(&game->shared->spent[key], 1);
}

static void child(game_t *game, unsigned self) {
    uint64_t random = 1000ull * game->round + self;

    while (self == VICTIM) {
        atomic_store(&game->shared->is_working, 1);
        operate(game, &random);
        atomic_store(&game->shared->is_working, 0);
    }

    for (unsigned i = 0; i < OPS; i++) {
        operate(game, &random);
    }
}

/* No more than was added; and a key that comes later finds its place. */
static void audit(game_t *game) {
    shared_t *shared = game->shared;
    uint64_t later_ms = NOW_MS + game->spread_ms + LEASE_MS;

    game->killed_at_work += atomic_load(&shared->is_working);

    for (uint64_t key = 0; key < KEYS; key++) {
        Claim claim = lease_claim(&game->policy, key, 1);
        unsigned added = atomic_load(&shared->added[key]);
        unsigned spent = atomic_load(&shared->spent[key]);

        game->spent += spent;
        spent += lease_drain(game->leases, &claim, NOW_MS);

        if (spent > added) {
            fail_msg("round %u, key %u: %u added, %u spent", game->round, (unsigned)key, added,
                     spent);
        }
    }

    for (uint64_t key = 0; key < KEYS; key++, later_ms += LEASE_MS) {
        Claim claim = lease_claim(&game->policy, key, 1);

        add_units(game, key, later_ms);
        assert_in_range(lease_drain(game->leases, &claim, later_ms), UNITS, UINT32_MAX);
    }
}

static void play(game_t *game) {
    new (game->shared) shared_t{};
    memset(game->leases, 0, LEASES_BYTES(game->groups));
    Leases::init(game->leases, LEASES_BYTES(game->groups));

    kill_one(game->round, &game->shared->started, [&](unsigned self) { child(game, self); });

    audit(game);
}

static void run(game_t *game) {
    game->policy = evicting(DAY_MS);
    game->shared = share<shared_t>(sizeof(*game->shared));
    game->leases = share<Leases>(LEASES_BYTES(game->groups));

    for (game->round = 0; game->round < ROUNDS; game->round++) {
        play(game);
    }

    munmap(game->leases, LEASES_BYTES(game->groups));
    munmap(game->shared, sizeof(*game->shared));

    /* else the rounds say nothing */
    assert_in_range(game->killed_at_work, ROUNDS / 10, ROUNDS);
    assert_in_range(game->spent, ROUNDS * 100, UINT32_MAX);
}

static void test_killed_with_room(void **state) {
    game_t game = {.groups = 8};

    (void)state;

    run(&game);
}

/* More keys than leases, of which some are no longer in use. */
static void test_killed_in_a_crowd(void **state) {
    game_t game = {.groups = 1, .spread_ms = 3 * LEASE_MS / 2};

    (void)state;

    run(&game);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_with_room),
        cmocka_unit_test(test_killed_in_a_crowd),
    };

    return cmocka_run_group_tests_name("lease fork", tests, NULL, NULL);
}
