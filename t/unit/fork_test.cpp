/* Copyright (C) the limit_sliding authors */

/*
 * Processes at one zone, of which one is killed in the midst of it, in every
 * round at another instruction.
 */

#include "processes.hpp"

#define KEYS 4
#define WINDOW_MS ((uint64_t)DAY_MS)
#define LIMIT 2000

/* Longer than any tentative slot of a dead process is respected. */
#define ROUND_MS (WINDOW_MS << 18)

/* What the processes write down, of every one its own. */
struct record_t {
    std::atomic_uint admitted[KEYS];
    std::atomic_uint doing; /* the key of the decision under way, plus one, or: */
#define FLOODING UINT32_MAX
};

struct shared_t {
    record_t records[PROCESSES];
    std::atomic_uint started;
    std::atomic_uint decided;
};

typedef struct game_s {
    void (*work)(struct game_s *game, record_t *record, uint64_t *random);
    unsigned keys; /* whose limit is checked */
    uint32_t cost;
    Algorithm algorithm;
    unsigned pace; /* decisions in a millisecond; 0: time stands still */

    Policy policy;
    Zone *zone;
    shared_t *shared;
    uint64_t now_ms;
    unsigned round;
    unsigned killed_at_work;
} game_t;

static uint64_t name_of(const game_t *game, unsigned key) { return 1000ull * game->round + key; }

static uint64_t time_of(game_t *game) {
    return game->pace == 0
               ? game->now_ms
               : game->now_ms + atomic_fetch_add(&game->shared->decided, 1) / game->pace;
}

/* One decision, and the note of it. */
static void demand(game_t *game, record_t *record, unsigned key) {
    int admitted;

    atomic_store(&record->doing, key + 1);

    admitted
        = admits(game->zone, &game->policy, name_of(game, key), LIMIT, game->cost, time_of(game));

    atomic_fetch_add(&record->admitted[key], admitted);
    atomic_store(&record->doing, 0);
}

static void work_with_room(game_t *game, record_t *record, uint64_t *random) {
    demand(game, record, (unsigned)random_below(random, KEYS));
}

/* Every other request is of a new key, for which another has to go. */
static void work_in_a_flood(game_t *game, record_t *record, uint64_t *random) {
    atomic_store(&record->doing, FLOODING);
    admits(game->zone, &game->policy, random_next(random), LIMIT, 1, time_of(game));
    demand(game, record, 0);
}

static void child(game_t *game, unsigned self) {
    record_t *record = &game->shared->records[self];
    uint64_t random = 1000ull * game->round + self;

    while (self == VICTIM) {
        game->work(game, record, &random);
    }

    for (unsigned i = 0; i < 500; i++) {
        game->work(game, record, &random);
    }

    /* what is left over, so that the demand exceeds the limit */

    for (unsigned key = 0; key < game->keys; key++) {
        for (unsigned i = 0; i <= LIMIT / game->cost; i++) {
            demand(game, record, key);
        }
    }
}

/* All is admitted and on record, but for what the dead process was about. */
static void audit(game_t *game) {
    unsigned doing = atomic_load(&game->shared->records[VICTIM].doing);

    game->killed_at_work += doing != 0;

    for (unsigned key = 0; key < game->keys; key++) {
        unsigned unsure = doing == key + 1;
        unsigned fit = LIMIT / game->cost;
        unsigned admitted = 0;
        uint32_t left
            = remaining_of(game->zone, &game->policy, name_of(game, key), LIMIT, time_of(game));

        for (unsigned i = 0; i < PROCESSES; i++) {
            admitted += atomic_load(&game->shared->records[i].admitted[key]);
        }

        if (admitted > fit || admitted + unsure < fit || left != 0) {
            fail_msg("round %u, key %u: %u of %u admitted, %u unsure, %u left", game->round, key,
                     admitted, fit, unsure, left);
        }
    }
}

static void play(game_t *game) {
    new (game->shared) shared_t{};
    game->now_ms += ROUND_MS;

    kill_one(game->round, &game->shared->started, [&](unsigned self) { child(game, self); });

    audit(game);
}

static void run(game_t *game, size_t zone_bytes) {
    game->policy = evicting(WINDOW_MS);
    game->policy.algorithm = game->algorithm;
    game->now_ms = PRESENT * WINDOW_MS + 1;
    game->shared = share<shared_t>(sizeof(*game->shared));
    game->zone = share<Zone>(zone_bytes);
    Zone::init(game->zone, zone_bytes, game->policy, 0, test_secret);

    for (game->round = 0; game->round < ROUNDS; game->round++) {
        play(game);
    }

    munmap(game->zone, zone_bytes);
    munmap(game->shared, sizeof(*game->shared));

    /* else the rounds say nothing */
    assert_in_range(game->killed_at_work, ROUNDS / 10, ROUNDS);
}

static void test_killed_with_room(void **state) {
    game_t game = {.work = work_with_room, .keys = KEYS, .cost = 1};

    (void)state;

    run(&game, MEGABYTE_ZONE_BYTES);
}

static void test_killed_in_a_flood(void **state) {
    game_t game = {.work = work_in_a_flood, .keys = 1, .cost = 2};

    (void)state;

    run(&game, PAIR_BYTES);
}

/* Time passes, so that a log has more events than a ring holds. */
static void test_log_killed_with_room(void **state) {
    game_t game = {
        .work = work_with_room, .keys = KEYS, .cost = 5, .algorithm = Algorithm::kLog, .pace = 1};

    (void)state;

    run(&game, MEGABYTE_ZONE_BYTES);
}

/* What is left of a log of one event after a flood is all of it. */
static void test_log_killed_in_a_flood(void **state) {
    game_t game = {.work = work_in_a_flood, .keys = 1, .cost = 2, .algorithm = Algorithm::kLog};

    (void)state;

    run(&game, RING_PAIR_BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_with_room),
        cmocka_unit_test(test_killed_in_a_flood),
        cmocka_unit_test(test_log_killed_with_room),
        cmocka_unit_test(test_log_killed_in_a_flood),
    };

    return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
