/* Copyright (C) the limit_sliding authors */

/*
 * Threads at one zone, in short rounds that all begin at once, as what a test
 * looks for lasts nanoseconds.
 */

#include "core/policy/override.hpp"
#include "rounds.hpp"

#define WINDOW_MS (60 * MINUTE_MS)
#define LIMIT 8

#define ENOUGH_S 6

struct game_t {
    unsigned threads;
    unsigned rounds;
    uint32_t limit;
    uint32_t cost;   /* of a request for the round's key */
    uint32_t filler; /* what the other keys have used up */
    Algorithm algorithm;
    uint32_t precision;
    unsigned pace; /* decisions in a millisecond; 0: time stands still */
    bool is_own;   /* the round's key has a window of its own */

    /* as in rounds.hpp */
    void (*begin)(game_t *game);
    void (*work)(game_t *game, unsigned thread);
    void (*end)(game_t *game);

    Policy policy; /* of the round's key */
    Policy others; /* of those that come with it */
    Policy deny;
    Zone *zone;
    Zone *full;
    uint64_t now_ms;
    uint64_t key;
    unsigned round;

    std::atomic_uint decided;
    std::atomic_uint admitted;

    unsigned wrong; /* rounds that did not end as they must */
    unsigned last_wrong;
};

/* Of another length in every round, so that all steps meet all others. */
static void dawdle(uint64_t *random) {
    for (uint64_t i = random_below(random, 64); i > 0; i--) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
}

/* One round, for Rounds. */
struct player_t {
    game_t *game;

    void begin(unsigned round) {
        game->round = round;
        game->admitted = 0;
        game->begin(game);
    }

    void work(unsigned thread, uint64_t *random) {
        dawdle(random);
        game->work(game, thread);
    }

    void end() { game->end(game); }
};

static void run(game_t *game, size_t zone_bytes) {
    player_t player = {game};

    game->policy = evicting(WINDOW_MS);
    game->policy.algorithm = game->algorithm;
    game->policy.precision = game->precision;
    game->deny = denying(WINDOW_MS);
    game->others = game->policy;
    game->zone = make_zone_for(&game->policy, zone_bytes);
    game->full = make_zone(PAIR_BYTES);

    if (game->is_own) {
        game->policy = with_window(game->policy, {WINDOW_MS / 4, Calendar::kNone});
    }

    game->now_ms = PRESENT * WINDOW_MS + 1;

    Rounds<player_t>::play(&player, game->threads, game->rounds, ENOUGH_S);

    free(game->zone);
    free(game->full);

    if (game->wrong != 0) {
        fail_msg("%u of %u rounds went wrong, the last with %u", game->wrong, game->rounds,
                 game->last_wrong);
    }
}

static void judge(game_t *game, unsigned got, unsigned expected) {
    if (got != expected) {
        game->wrong++;
        game->last_wrong = got;
    }
}

static uint64_t time_of(game_t *game) {
    return game->pace == 0 ? game->now_ms
                           : game->now_ms + atomic_fetch_add(&game->decided, 1) / game->pace;
}

static void demand(game_t *game, uint64_t key, unsigned requests) {
    while (requests-- > 0) {
        if (admits(game->zone, &game->policy, key, game->limit, game->cost, time_of(game))) {
            atomic_fetch_add(&game->admitted, 1);
        }
    }
}

/* Exactly as many as fit were admitted, and all of them are on record. */
static void end_exact(game_t *game) {
    judge(game, atomic_load(&game->admitted), game->limit / game->cost);
    judge(game, remaining_of(game->zone, &game->policy, game->key, game->limit, time_of(game)),
          game->limit % game->cost);
}

/* ---- keys that are known ---- */

static void begin_one_key(game_t *game) { game->key = game->round; }

static void work_one_key(game_t *game, unsigned thread) {
    (void)thread;

    demand(game, game->key, 10000);
}

static void test_one_key(void **state) {
    game_t game = {.threads = 2,
                   .rounds = 5,
                   .limit = 10007,
                   .cost = 1,
                   .begin = begin_one_key,
                   .work = work_one_key,
                   .end = end_exact};

    (void)state;

    run(&game, MEGABYTE_ZONE_BYTES);
}

static void work_fifty_keys(game_t *game, unsigned thread) {
    uint64_t random = thread;

    for (unsigned i = 0; i < 5000; i++) {
        demand(game, game->round * 50 + random_below(&random, 50), 1);
    }

    for (uint64_t key = 0; key < 50; key++) {
        demand(game, game->round * 50 + key, 97);
    }
}

static void end_fifty_keys(game_t *game) {
    judge(game, atomic_load(&game->admitted), 50 * game->limit);
}

static void test_fifty_keys(void **state) {
    game_t game = {.threads = 2,
                   .rounds = 5,
                   .limit = 97,
                   .cost = 1,
                   .begin = begin_one_key,
                   .work = work_fifty_keys,
                   .end = end_fifty_keys};

    (void)state;

    run(&game, MEGABYTE_ZONE_BYTES);
}

static void work_new_key(game_t *game, unsigned thread) {
    (void)thread;

    demand(game, game->key, 2 * LIMIT);
}

/* ---- keys whose state is more than a word ---- */

static void work_history(game_t *game, unsigned thread) {
    (void)thread;

    demand(game, game->key, 2000);
}

/* A part of the window ends in the midst of it, but none expires. */
static void begin_later(game_t *game) {
    game->now_ms = (PRESENT + 2ull * game->round) * WINDOW_MS - 3;
    game->key = game->round;
    atomic_store(&game->decided, 0);
}

/* Time passes while the threads decide, backwards at times. */
static void run_history(Algorithm algorithm, uint32_t precision) {
    game_t one = {.threads = 2,
                  .rounds = 20,
                  .limit = 1009,
                  .cost = 1,
                  .algorithm = algorithm,
                  .precision = precision,
                  .pace = 8,
                  .begin = begin_later,
                  .work = work_history,
                  .end = end_exact};
    game_t fifty = {.threads = 2,
                    .rounds = 3,
                    .limit = 97,
                    .cost = 1,
                    .algorithm = algorithm,
                    .precision = precision,
                    .pace = 8,
                    .begin = begin_later,
                    .work = work_fifty_keys,
                    .end = end_fifty_keys};
    game_t fresh = {.threads = 2,
                    .rounds = 20000,
                    .limit = LIMIT,
                    .cost = 1,
                    .algorithm = algorithm,
                    .precision = precision,
                    .pace = 2,
                    .begin = begin_later,
                    .work = work_new_key,
                    .end = end_exact};

    run(&one, MEGABYTE_ZONE_BYTES);
    run(&fifty, MEGABYTE_ZONE_BYTES);
    run(&fresh, 8192);
}

static void test_log(void **state) {
    (void)state;

    run_history(Algorithm::kLog, 0);
}

static void test_precision(void **state) {
    (void)state;

    run_history(Algorithm::kCounter, 60);
}

/* ---- keys that are new to all threads at once ---- */

static void fill(game_t *game, Zone *zone, uint32_t used) {
    for (uint64_t i = 0; i < PAIR_SLOTS; i++) {
        admits(zone, &game->policy, 1000000000 + 1000ull * game->round + i, LIMIT_MAX, used,
               game->now_ms);
    }
}

/* All the keys of a round are over when the next begins. */
static void begin_full_zone(game_t *game) {
    game->now_ms += 2 * WINDOW_MS;
    game->key = game->round;
    fill(game, game->zone, game->filler);
}

static void begin_empty_zone(game_t *game) {
    memset(game->zone, 0, PAIR_BYTES);
    init_zone(game->zone, PAIR_BYTES, test_secret);
    game->key = game->round;
}

static void test_new_key_in_an_empty_zone(void **state) {
    game_t game = {.threads = 2,
                   .rounds = 100000,
                   .limit = LIMIT,
                   .cost = 1,
                   .begin = begin_empty_zone,
                   .work = work_new_key,
                   .end = end_exact};

    (void)state;

    run(&game, PAIR_BYTES);
}

static void test_new_key_among_equals(void **state) {
    game_t game = {.threads = 2,
                   .rounds = 100000,
                   .limit = LIMIT,
                   .cost = 1,
                   .filler = 1,
                   .begin = begin_full_zone,
                   .work = work_new_key,
                   .end = end_exact};

    (void)state;

    run(&game, PAIR_BYTES);
}

/* It is itself what constrains least, and must not give way to itself. */
static void test_new_key_among_heavier(void **state) {
    game_t game = {.threads = 2,
                   .rounds = 100000,
                   .limit = LIMIT,
                   .cost = 1,
                   .filler = 5,
                   .begin = begin_full_zone,
                   .work = work_new_key,
                   .end = end_exact};

    (void)state;

    run(&game, PAIR_BYTES);
}

/* Half the threads insert other keys, which constrain less. */
static void work_new_key_in_a_flood(game_t *game, unsigned thread) {
    if (thread % 2 == 0) {
        demand(game, game->key, 2 * LIMIT);
        return;
    }

    for (uint64_t i = 0; i < 2 * LIMIT; i++) {
        admits(game->zone, &game->others, 2000000000 + 1000ull * game->round + 100 * thread + i,
               100, 1, game->now_ms);
    }
}

/* `is_own`: the others have another window than the key. */
static void flood(bool is_own) {
    game_t game = {.threads = 2,
                   .rounds = 100000,
                   .limit = LIMIT,
                   .cost = 2,
                   .filler = 1,
                   .is_own = is_own,
                   .begin = begin_full_zone,
                   .work = work_new_key_in_a_flood,
                   .end = end_exact};

    run(&game, PAIR_BYTES);
}

static void test_new_key_in_a_flood(void **state) {
    (void)state;
    flood(false);
}

static void test_own_windows_in_a_flood(void **state) {
    (void)state;
    flood(true);
}

/* ---- a key that returns when its slot is up for others ---- */

static void begin_all_over(game_t *game) {
    game->now_ms += 2 * WINDOW_MS;
    game->key = game->round;
}

/*
 * The round's key was the first of the new ones of the round before, and has
 * the slot that the first new one of this round looks at first.  There are no
 * more keys than slots: nobody has to go.
 */
static void work_returning_key(game_t *game, unsigned thread) {
    if (thread == 0) {
        demand(game, game->key, 2 * LIMIT);
        return;
    }

    admits(game->zone, &game->policy, game->round + 1, 100, 1, game->now_ms);

    for (uint64_t i = 0; i < PAIR_SLOTS - 2; i++) {
        admits(game->zone, &game->others, 1000000000 + 10ull * game->round + i, 100, 1,
               game->now_ms);
    }
}

static void return_among_new_ones(bool is_own) {
    game_t game = {.threads = 2,
                   .rounds = 100000,
                   .limit = LIMIT,
                   .cost = 1,
                   .is_own = is_own,
                   .begin = begin_all_over,
                   .work = work_returning_key,
                   .end = end_exact};

    run(&game, PAIR_BYTES);
}

static void test_returning_key_among_new_ones(void **state) {
    (void)state;
    return_among_new_ones(false);
}

static void test_own_windows_that_return(void **state) {
    (void)state;
    return_among_new_ones(true);
}

/* ---- all or nothing ---- */

static void begin_second_full(game_t *game) {
    begin_all_over(game);
    game->key = game->round;
    fill(game, game->full, 1);
}

/* Many keys, so that the first claim is often for a new one. */
static void work_second_full(game_t *game, unsigned thread) {
    for (uint64_t i = 0; i < 3; i++) {
        Claim claims[] = {claim_of(game->zone, &game->policy, game->key, 100, 2),
                          claim_of(game->full, &game->deny, 10 * thread + i, 100, 2)};

        if (claims[limit_sliding::acquire(claims, 2, game->now_ms)].outcome != Outcome::kRefused) {
            atomic_fetch_add(&game->admitted, 1);
        }
    }
}

static void end_second_full(game_t *game) {
    judge(game, atomic_load(&game->admitted), 0);
    judge(game, remaining_of(game->zone, &game->policy, game->key, 100, game->now_ms), 100);
}

static void test_refused_by_the_second_limit(void **state) {
    game_t game = {.threads = 2,
                   .rounds = 100000,
                   .begin = begin_second_full,
                   .work = work_second_full,
                   .end = end_second_full};

    (void)state;

    run(&game, PAIR_BYTES);
}

static void work_two_limits(game_t *game, unsigned thread) {
    (void)thread;

    for (unsigned i = 0; i < 2 * LIMIT; i++) {
        Claim claims[] = {claim_of(game->zone, &game->policy, game->key, 100, 1),
                          claim_of(game->full, &game->policy, game->key, LIMIT, 1)};

        if (claims[limit_sliding::acquire(claims, 2, game->now_ms)].outcome == Outcome::kAdmitted) {
            atomic_fetch_add(&game->admitted, 1);
        }
    }
}

static void end_two_limits(game_t *game) {
    judge(game, atomic_load(&game->admitted), LIMIT);
    judge(game, remaining_of(game->zone, &game->policy, game->key, 100, game->now_ms), 100 - LIMIT);
}

static void test_contested_second_limit(void **state) {
    game_t game = {.threads = 2,
                   .rounds = 100000,
                   .begin = begin_second_full,
                   .work = work_two_limits,
                   .end = end_two_limits};

    (void)state;

    run(&game, PAIR_BYTES);
}

/* ---- more keys than there is room for ---- */

static void work_crowd(game_t *game, unsigned thread) {
    uint64_t random = 100 * game->round + thread;

    for (unsigned i = 0; i < 20000; i++) {
        uint64_t key = random_below(&random, 1000);
        uint32_t cost = (uint32_t)random_below(&random, 3);
        uint64_t at_ms = game->now_ms + random_below(&random, 20);

        admits(game->zone, i % 16 ? &game->policy : &game->deny, key, 4, cost, at_ms);
    }
}

/* A key that is then alone finds its limit as ever. */
static void end_crowd(game_t *game) {
    game->limit = 4;
    game->cost = 1;
    game->key = 1000000000 + game->round;
    demand(game, game->key, 6);
    end_exact(game);
}

static void test_crowd_in_a_tiny_zone(void **state) {
    game_t game = {
        .threads = 2, .rounds = 5, .begin = begin_all_over, .work = work_crowd, .end = end_crowd};

    (void)state;

    run(&game, PAIR_BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_key),
        cmocka_unit_test(test_fifty_keys),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_precision),
        cmocka_unit_test(test_new_key_in_an_empty_zone),
        cmocka_unit_test(test_new_key_among_equals),
        cmocka_unit_test(test_new_key_among_heavier),
        cmocka_unit_test(test_new_key_in_a_flood),
        cmocka_unit_test(test_own_windows_in_a_flood),
        cmocka_unit_test(test_returning_key_among_new_ones),
        cmocka_unit_test(test_own_windows_that_return),
        cmocka_unit_test(test_refused_by_the_second_limit),
        cmocka_unit_test(test_contested_second_limit),
        cmocka_unit_test(test_crowd_in_a_tiny_zone),
    };

    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
