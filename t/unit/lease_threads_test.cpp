/* Copyright (C) the limit_sliding authors */

/*
 * Threads at one group of leases, in short rounds that all begin at once: each
 * starts with a new table, lest units that are lost make up for others that are
 * spent twice.
 */

#include "leases.hpp"
#include "rounds.hpp"

#define THREADS 4
#define KEYS 5
#define OPS 40
#define UNITS 10
#define LIMIT 1000

#define ENOUGH_S 4

/* What a thread has done, in all rounds. */
struct player_t {
    uint64_t added; /* times */
    uint64_t spent; /* units */
};

struct game_t {
    unsigned rounds;
    unsigned keys;
    unsigned returns;   /* of spends, one in so many is returned; 0: none */
    unsigned adds;      /* of operations, one in so many adds */
    uint64_t spread_ms; /* clocks, and times when Redis was asked, differ */

    Policy policy;
    Leases *leases;
    player_t players[THREADS];

    std::atomic_int balance[KEYS]; /* units added less units spent */
    std::atomic_uint returned;
    uint64_t added; /* times, in all rounds */
    uint64_t spent; /* units */
    uint64_t lost;  /* units that nobody could spend in the end */
    unsigned wrong; /* rounds in which there were more than added */

    /* as in rounds.hpp */
    void begin(unsigned round);
    void work(unsigned thread, uint64_t *random);
    void end();
};

static uint64_t time_of(const game_t *game, uint64_t *random) {
    return NOW_MS + random_below(random, game->spread_ms + 1);
}

static void operate(game_t *game, player_t *player, uint64_t *random) {
    static const told_t told = {SERVER_MS, LIMIT, 900, 0};
    uint64_t key = random_below(random, game->keys);
    uint64_t now_ms = time_of(game, random);
    Claim claim = lease_claim(&game->policy, key, 1);

    if (random_below(random, game->adds) == 0) {
        atomic_fetch_add(&game->balance[key], UNITS);
        lease_add(game->leases, &claim, told, UNITS, time_of(game, random), now_ms);
        player->added++;
        return;
    }

    if (!lease_spend(game->leases, &claim, now_ms)) { return; }

    if (game->returns > 0 && random_below(random, game->returns) == 0) {
        game->leases->give_back(claim, now_ms);
        atomic_fetch_add(&game->returned, 1);
        return;
    }

    atomic_fetch_sub(&game->balance[key], 1);
    player->spent++;
}

void game_t::begin(unsigned) {
    memset(leases, 0, LEASES_BYTES(1));
    Leases::init(leases, LEASES_BYTES(1));

    for (unsigned key = 0; key < keys; key++) {
        atomic_store(&balance[key], 0);
    }
}

/* All at most once. */
void game_t::end() {
    for (unsigned key = 0; key < keys; key++) {
        Claim claim = lease_claim(&policy, key, 1);
        int left = atomic_load(&balance[key]) - (int)lease_drain(leases, &claim, NOW_MS);

        wrong += left < 0;
        lost += left > 0 ? (unsigned)left : 0;
    }
}

void game_t::work(unsigned thread, uint64_t *random) {
    for (unsigned i = 0; i < OPS; i++) {
        operate(this, &players[thread], random);
    }
}

static void run(game_t *game) {
    game->policy = evicting(DAY_MS);
    game->policy.algorithm = Algorithm::kFixed;
    game->leases = make_leases(1);

    Rounds<game_t>::play(game, THREADS, game->rounds, ENOUGH_S);

    for (const player_t &player : game->players) {
        game->added += player.added;
        game->spent += player.spent;
    }

    free(game->leases);

    print_message("# %llu adds, %llu units spent, %u returned, %llu lost\n",
                  (unsigned long long)game->added, (unsigned long long)game->spent,
                  atomic_load(&game->returned), (unsigned long long)game->lost);

    if (game->wrong > 0) { fail_msg("%u times more was spent than added", game->wrong); }

    /* else the rounds say nothing */
    assert_in_range(game->spent, game->added / 10, UINT32_MAX);
}

/*
 * None, as a rule: whoever was in others' way 512 times gives up what he
 * has, which may be of some adds.
 */
static void check_losses(const game_t *game) { assert_in_range(game->lost, 0, 10 * UNITS); }

/* Without deaths all is spendable in the end, whoever asks at once. */
static void test_one_key(void **state) {
    game_t game = {.rounds = 40000, .keys = 1, .adds = 4};

    (void)state;

    run(&game);
    check_losses(&game);
}

static void test_adds_of_one_key(void **state) {
    game_t game = {.rounds = 40000, .keys = 1, .adds = 2};

    (void)state;

    run(&game);
    check_losses(&game);
}

/* There is a lease for each, but one may have both for a moment. */
static void test_one_key_and_another(void **state) {
    game_t game = {.rounds = 40000, .keys = 2, .adds = 4};

    (void)state;

    run(&game);
}

/* What is returned is lost if the lease is being written all the time. */
static void test_returns(void **state) {
    game_t game = {.rounds = 40000, .keys = 1, .returns = 2, .adds = 6};

    (void)state;

    run(&game);
    assert_in_range(game.lost, 0, atomic_load(&game.returned) / 10);
}

/* Keys that evict each other: some of their leases are no longer in use. */
static void test_several_keys(void **state) {
    game_t game
        = {.rounds = 40000, .keys = KEYS, .returns = 5, .adds = 3, .spread_ms = 3 * LEASE_MS / 2};

    (void)state;

    run(&game);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_key),
        cmocka_unit_test(test_adds_of_one_key),
        cmocka_unit_test(test_one_key_and_another),
        cmocka_unit_test(test_returns),
        cmocka_unit_test(test_several_keys),
    };

    return cmocka_run_group_tests_name("lease threads", tests, NULL, NULL);
}
