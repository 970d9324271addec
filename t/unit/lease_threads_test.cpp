/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * Threads at one group of leases, in short rounds that all begin at once: each
 * starts with a new table, lest units that are lost make up for others that are
 * spent twice.
 */

#include "leases.hpp"

#include <atomic>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#define THREADS 4
#define KEYS 5
#define OPS 40
#define UNITS 10
#define LIMIT 1000

/* On a busy machine a round takes a thousand times as long. */
#define ENOUGH_S 4

struct game_t {
    unsigned rounds;
    unsigned keys;
    unsigned returns;   /* of spends, one in so many is returned; 0: none */
    unsigned adds;      /* of operations, one in so many adds */
    uint64_t spread_ms; /* clocks, and times when Redis was asked, differ */

    Policy policy;
    Leases *leases;
    std::atomic_uint waiting;
    std::atomic_uint turn;
    std::atomic_bool enough;

    std::atomic_int balance[KEYS]; /* units added less units spent */
    std::atomic_uint returned;
    uint64_t added; /* times, in all rounds */
    uint64_t spent; /* units */
    uint64_t lost;  /* units that nobody could spend in the end */
    unsigned wrong; /* rounds in which there were more than added */
};

struct player_t {
    game_t *game;
    unsigned thread;
    uint64_t added;
    uint64_t spent;
};

/* Spins: to wake up from a lock takes longer than a whole round. */
static void meet(game_t *game)
{
    unsigned turn = atomic_load(&game->turn);

    if (atomic_fetch_add(&game->waiting, 1) == THREADS - 1) {
        atomic_store(&game->waiting, 0);
        atomic_store(&game->turn, turn + 1);
        return;
    }

    while (atomic_load(&game->turn) == turn) {
        sched_yield();
    }
}

static uint64_t time_of(const game_t *game, uint64_t *random)
{
    return NOW_MS + random_below(random, game->spread_ms + 1);
}

static void operate(game_t *game, player_t *player, uint64_t *random)
{
    static const told_t told = {SERVER_MS, LIMIT, 900, 0};
    uint64_t key = random_below(random, game->keys);
    uint64_t now_ms = time_of(game, random);
    Claim claim = lease_claim(&game->policy, key, 1);

    if (random_below(random, game->adds) == 0) {
        atomic_fetch_add(&game->balance[key], UNITS);
        lease_add(game->leases, &claim, told, UNITS, time_of(game, random),
                  now_ms);
        player->added++;
        return;
    }

    if (!lease_spend(game->leases, &claim, now_ms)) {
        return;
    }

    if (game->returns > 0 && random_below(random, game->returns) == 0) {
        game->leases->give_back(claim, now_ms);
        atomic_fetch_add(&game->returned, 1);
        return;
    }

    atomic_fetch_sub(&game->balance[key], 1);
    player->spent++;
}

static void begin(game_t *game)
{
    memset(game->leases, 0, LEASES_BYTES(1));
    Leases::init(game->leases, LEASES_BYTES(1));

    for (unsigned key = 0; key < game->keys; key++) {
        atomic_store(&game->balance[key], 0);
    }
}

/* All at most once. */
static void end(game_t *game)
{
    for (unsigned key = 0; key < game->keys; key++) {
        Claim claim = lease_claim(&game->policy, key, 1);
        int left = atomic_load(&game->balance[key])
                   - (int)lease_drain(game->leases, &claim, NOW_MS);

        game->wrong += left < 0;
        game->lost += left > 0 ? (unsigned)left : 0;
    }
}

static void *play(void *data)
{
    player_t *player = static_cast<player_t *>(data);
    game_t *game = player->game;
    uint64_t random = player->thread;
    time_t start = time(NULL);

    for (unsigned round = 0; round < game->rounds; round++) {
        if (player->thread == 0) {
            begin(game);
            atomic_store(&game->enough, time(NULL) > start + ENOUGH_S);
        }

        meet(game);

        if (atomic_load(&game->enough)) {
            break;
        }

        for (unsigned i = 0; i < OPS; i++) {
            operate(game, player, &random);
        }

        meet(game);

        if (player->thread == 0) {
            end(game);
        }
    }

    return NULL;
}

static void run(game_t *game)
{
    pthread_t threads[THREADS];
    player_t players[THREADS];

    game->policy = evicting(DAY_MS);
    game->policy.algorithm = Algorithm::kFixed;
    game->leases = make_leases(1);

    for (unsigned i = 0; i < THREADS; i++) {
        players[i] = (player_t){game, i, 0, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, play, &players[i]),
                         0);
    }

    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        game->added += players[i].added;
        game->spent += players[i].spent;
    }

    free(game->leases);

    print_message("# %llu adds, %llu units spent, %u returned, %llu lost\n",
                  (unsigned long long)game->added,
                  (unsigned long long)game->spent, atomic_load(&game->returned),
                  (unsigned long long)game->lost);

    if (game->wrong > 0) {
        fail_msg("%u times more was spent than added", game->wrong);
    }

    /* else the rounds say nothing */
    assert_in_range(game->spent, game->added / 10, UINT32_MAX);
}

/*
 * None, as a rule: whoever was in others' way 512 times gives up what he
 * has, which may be of some adds.
 */
static void check_losses(const game_t *game)
{
    assert_in_range(game->lost, 0, 10 * UNITS);
}

/* Without deaths all is spendable in the end, whoever asks at once. */
static void test_one_key(void **state)
{
    game_t game = {.rounds = 40000, .keys = 1, .adds = 4};

    (void)state;

    run(&game);
    check_losses(&game);
}

static void test_adds_of_one_key(void **state)
{
    game_t game = {.rounds = 40000, .keys = 1, .adds = 2};

    (void)state;

    run(&game);
    check_losses(&game);
}

/* There is a lease for each, but one may have both for a moment. */
static void test_one_key_and_another(void **state)
{
    game_t game = {.rounds = 40000, .keys = 2, .adds = 4};

    (void)state;

    run(&game);
}

/* What is returned is lost if the lease is being written all the time. */
static void test_returns(void **state)
{
    game_t game = {.rounds = 40000, .keys = 1, .returns = 2, .adds = 6};

    (void)state;

    run(&game);
    assert_in_range(game.lost, 0, atomic_load(&game.returned) / 10);
}

/* Keys that evict each other: some of their leases are no longer in use. */
static void test_several_keys(void **state)
{
    game_t game = {.rounds = 40000,
                   .keys = KEYS,
                   .returns = 5,
                   .adds = 3,
                   .spread_ms = 3 * LEASE_MS / 2};

    (void)state;

    run(&game);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_key),
        cmocka_unit_test(test_adds_of_one_key),
        cmocka_unit_test(test_one_key_and_another),
        cmocka_unit_test(test_returns),
        cmocka_unit_test(test_several_keys),
    };

    return cmocka_run_group_tests_name("lease threads", tests, NULL, NULL);
}
