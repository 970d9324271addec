/* Copyright (C) the limit_sliding authors */

#include "core/limiter/zone_memory.hpp"
#include "core/table/zone.hpp"
#include "support.hpp"
#include "zone.hpp"

#include <sys/mman.h>
#include <unistd.h>

/* Late in a window. */
#define NOW_MS (PRESENT * MINUTE_MS + 59000)

/* As in counter.hpp. */
/* Of a window of 100 ms. */
#define EPOCH_MS 4096ull
#define EPOCH_WINDOWS (EPOCH_MS / 100)

/* ---- capacity ---- */

static void test_sixty_thousand_keys_in_a_megabyte(void **state) {
    Policy policy = evicting(60 * MINUTE_MS);
    Zone *zone = make_zone(MEGABYTE_ZONE_BYTES);
    unsigned rejected = 0;

    (void)state;

    for (uint64_t key = 0; key < 60000; key++) {
        assert_true(admits(zone, &policy, key, 1, 1, NOW_MS));
    }

    for (uint64_t key = 0; key < 60000; key++) {
        rejected += !admits(zone, &policy, key, 1, 1, NOW_MS);
    }

    assert_in_range(rejected, 59990, 60000);
    free(zone);
}

/* Beside the table is what a zone needs without Redis and variables. */
static void test_a_million_keys_in_sixteen_megabytes(void **state) {
    Policy policy = evicting(60 * MINUTE_MS);
    void *memory = zone_memory(ZONE_16M_BYTES);
    ZoneMemory beside;
    unsigned forgotten = 0;
    Zone *zone;

    (void)state;

    memset(memory, 0, ZONE_16M_BYTES);
    beside.init(memory, ZONE_16M_BYTES, 0, 0, test_secret);
    zone = Zone::init((uint8_t *)memory + beside.bytes, ZONE_16M_BYTES - beside.bytes, policy, 0,
                      test_secret);

    for (uint64_t key = 0; key < 1000000; key++) {
        assert_true(admits(zone, &policy, key, 1, 1, NOW_MS));
    }

    for (uint64_t key = 0; key < 1000000; key++) {
        forgotten += remaining_of(zone, &policy, key, 1, NOW_MS) != 0;
    }

    assert_true(forgotten < 1000);
    assert_int_equal(stats_of(zone).evicted, forgotten);
    free(memory);
}

static void test_a_pair_holds_eight_keys(void **state) {
    Policy policy = denying(MINUTE_MS);
    Zone *zone = make_zone(PAIR_BYTES);

    (void)state;

    assert_int_equal(stats_of(zone).slots, PAIR_SLOTS);

    for (uint64_t key = 0; key < PAIR_SLOTS; key++) {
        assert_true(admits(zone, &policy, key, 1, 1, NOW_MS));
        assert_int_equal(count_of(zone, &policy, NOW_MS), key + 1);
    }

    for (uint64_t key = 0; key < PAIR_SLOTS; key++) {
        assert_false(admits(zone, &policy, key, 1, 1, NOW_MS));
    }

    free(zone);
}

/* ---- idle keys ---- */

/*
 * `windows` after it was used up a key is as new, on the way to which nobody
 * may have come by.
 */
static void check_idle(uint64_t start, uint64_t windows, uint32_t precision) {
    Policy policy = {100, Algorithm::kCounter, WhenFull::kEvict, precision};
    Zone *zone = make_zone(PAIR_BYTES);
    uint64_t now_ms = start * 100 + 99;

    assert_true(admits(zone, &policy, 1, 7, 7, now_ms));
    assert_false(admits(zone, &policy, 1, 7, 1, now_ms));

    now_ms += windows * 100;

    if (remaining_of(zone, &policy, 1, 7, now_ms) != 7 || count_of(zone, &policy, now_ms) != 0
        || !admits(zone, &policy, 1, 7, 7, now_ms)) {
        fail_msg("idle for %llu windows after window %llu, precision %u",
                 (unsigned long long)windows, (unsigned long long)start, precision);
    }

    assert_false(admits(zone, &policy, 1, 7, 1, now_ms));
    free(zone);
}

static void check_idle_for_about(uint64_t windows) {
    static const uint64_t starts[] = {0,
                                      1,
                                      65535,
                                      65536,
                                      131071,
                                      262143,
                                      262144,
                                      EPOCH_WINDOWS - 2,
                                      EPOCH_WINDOWS - 1,
                                      EPOCH_WINDOWS,
                                      1ull << 34};

    for (size_t i = 0; i < LENGTH(starts); i++) {
        for (int off = -3; off <= 3; off++) {
            check_idle(starts[i], windows + (uint64_t)off, 0);
            check_idle(starts[i], windows + (uint64_t)off, 1);
        }
    }
}

static void test_idle_keys_start_afresh(void **state) {
    static const uint64_t epochs[] = {1, 2, 3, 4, 5, 7, 8, 16};

    (void)state;

    check_idle_for_about(5);

    for (size_t i = 0; i < LENGTH(epochs); i++) {
        check_idle_for_about(epochs[i] * EPOCH_MS / 100);
        check_idle_for_about((epochs[i] * EPOCH_MS + EPOCH_MS / 2) / 100);
    }

    for (unsigned bit = 8; bit <= 28; bit++) {
        check_idle_for_about(1ull << bit);
        check_idle_for_about((1ull << bit) + (1ull << 7));
        check_idle_for_about((1ull << bit) - (1ull << 7));
        check_idle_for_about(3ull << (bit - 1));
    }
}

/* As in slot.hpp: epochs are compared modulo 2^23, and a tag that is up to 1024
 * ahead is of this epoch. */
#define EPOCHS (1ull << 23)
#define EPOCHS_AHEAD 1024

/* Epochs wrap after 2^23 x 41 windows, of 100 ms in a year. */
static void test_idle_for_lifetimes(void **state) {
    /* the last one ends where the window number in a state is again the same */
    static const uint64_t windows[]
        = {1ull << 28, 3ull << 27, 1ull << 29, (1ull << 29) + (1ull << 27),
           (EPOCHS - EPOCHS_AHEAD - 2) * EPOCH_MS / 100 >> 13 << 13};

    (void)state;

    for (size_t i = 0; i < LENGTH(windows); i++) {
        check_idle_for_about(windows[i]);
        check_idle_for_about(windows[i] - (1ull << 12));
        check_idle_for_about(windows[i] - (1ull << 16));
    }
}

/* Used now and then a key never forgets a window too early. */
static void test_epochs_pass_over_busy_keys(void **state) {
    Policy policy = evicting(128);
    Zone *zone = make_zone(PAIR_BYTES);
    uint64_t edge_ms = 64 * 128; /* an epoch */

    (void)state;

    for (uint64_t epoch = 1; epoch < 10; epoch++) {
        uint64_t now_ms = epoch * edge_ms - 1;

        assert_true(admits(zone, &policy, epoch % 2, 100, 60, now_ms));
        assert_true(admits(zone, &policy, epoch % 2, 100, 40, now_ms + 1));
        assert_false(admits(zone, &policy, epoch % 2, 100, 1, now_ms + 1));
        assert_int_equal(remaining_of(zone, &policy, epoch % 2, 100, now_ms + 65), 30);
    }

    free(zone);
}

/* ---- clocks ---- */

/* Keys come in while the states of others end by the clock of one worker.  Returns how many
 * of these a worker forgets whose clock is a little behind. */
static unsigned forgotten_behind(const Policy *policy, size_t bytes, unsigned keys,
                                 uint64_t others) {
    Zone *zone = make_zone_for(policy, bytes);
    uint64_t used_ms = PRESENT * MINUTE_MS + MINUTE_MS / 2;
    unsigned forgotten = 0;
    State state = 0;

    for (uint64_t key = 0; key < keys; key++) {
        Claim claim = acquire(zone, policy, key, 10, 10, used_ms);

        assert_int_equal(claim.outcome, Outcome::kAdmitted);
        state = claim.state;
    }

    uint64_t over_ms = used_ms + pure::expires_ms(*policy, state, used_ms, 10);

    for (uint64_t key = 0; key < others; key++) {
        admits(zone, policy, keys + key, 10, 1, over_ms);
    }

    for (uint64_t key = 0; key < keys; key++) {
        forgotten += acquire(zone, policy, key, 10, 0, over_ms - 3).state == 0;
    }

    free(zone);

    return forgotten;
}

static void test_nothing_ends_while_a_clock_behind_counts_it(void **state) {
    static const struct {
        Algorithm algorithm;
        uint32_t precision;
    } cases[] = {{Algorithm::kCounter, 1},
                 {Algorithm::kCounter, 0},
                 {Algorithm::kFixed, 1},
                 {Algorithm::kTokenBucket, 1},
                 {Algorithm::kLeakyBucket, 1}};

    (void)state;

    for (size_t i = 0; i < LENGTH(cases); i++) {
        Policy policy = denying(MINUTE_MS);

        policy.algorithm = cases[i].algorithm;
        policy.precision = cases[i].precision;
        policy.burst = policy.algorithm == Algorithm::kLeakyBucket ? 9 : 0;

        assert_int_equal(forgotten_behind(&policy, MEGABYTE_ZONE_BYTES, 200, 2000), 0);
        assert_int_equal(forgotten_behind(&policy, PAIR_BYTES, PAIR_SLOTS, 100), 0);
    }
}

/* A clock may be further behind: what ended is not given up for nothing. */
static void test_unused_slots_are_taken_before_what_ended(void **state) {
    Policy policy = evicting(MINUTE_MS);
    Zone *zone = make_zone(MEGABYTE_ZONE_BYTES);

    (void)state;

    for (uint64_t key = 0; key < 2000; key++) {
        assert_true(admits(zone, &policy, key, 10, 1, NOW_MS));
    }

    for (uint64_t key = 2000; key < 4000; key++) {
        assert_true(admits(zone, &policy, key, 10, 1, NOW_MS + 10 * MINUTE_MS));
    }

    assert_int_equal(stats_of(zone).used, 4000);
    free(zone);
}

/* ---- copies ---- */

/* A slot as slot.hpp lays it out. */
struct slot_t {
    uint64_t tag;
    uint64_t state;
};

static slot_t *first_used(Zone *zone) {
    slot_t *slot = (slot_t *)((uint8_t *)zone + kZoneAlign);

    while (slot->tag == 0) {
        slot++;
    }

    return slot;
}

/*
 * Two processes died after each had claimed a slot for the key, which got its
 * state in a third one meanwhile.  Who withdraws one of the claims has not seen
 * what stands behind it.
 */
static void test_claims_of_the_dead_before_the_key(void **state) {
    Policy policy = evicting(MINUTE_MS);
    Zone *zone = make_zone(PAIR_BYTES);
    slot_t *slots;

    (void)state;

    assert_true(admits(zone, &policy, 1, 1, 1, NOW_MS));

    slots = first_used(zone);
    slots[2] = slots[0];
    slots[1] = slots[0];
    slots[1].state = 0;
    slots[0].state = 0;

    assert_int_equal(remaining_of(zone, &policy, 1, 1, NOW_MS), 0);
    assert_false(admits(zone, &policy, 1, 1, 1, NOW_MS));
    assert_int_equal(count_of(zone, &policy, NOW_MS), 1);
    free(zone);
}

/* ---- memory ---- */

static void flood(Zone *zone) {
    Policy policy = evicting(MINUTE_MS);
    uint64_t keys = 4 * stats_of(zone).slots;

    for (uint64_t key = 0; key < keys; key++) {
        admits(zone, &policy, key, 3, 1 + (uint32_t)key % 3, NOW_MS);
    }

    count_of(zone, &policy, NOW_MS);
}

/* Whatever the size, no byte outside is touched: neighbours are guarded. */
static void test_nothing_outside_the_zone_is_touched(void **state) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inner = 4 * page;
    uint8_t *map = static_cast<uint8_t *>(
        mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    uint8_t *memory = map + page;

    (void)state;

    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(memory, inner, PROT_READ | PROT_WRITE), 0);

    for (size_t cut = 0; cut < 300; cut += cut < 20 ? 1 : 7) {
        size_t bytes = inner - cut;
        Zone *zone;

        memset(memory, 0, bytes);
        memset(memory + bytes, 0xa5, cut);
        zone = init_zone(memory, bytes, test_secret);
        assert_non_null(zone);
        flood(zone);

        for (size_t i = bytes; i < inner; i++) {
            assert_int_equal(memory[i], 0xa5);
        }
    }

    munmap(map, inner + 2 * page);
}

static void test_init_needs_a_header_and_a_group(void **state) {
    static uint8_t memory[4096] __attribute__((aligned(kZoneAlign)));
    uint64_t slots = 0;

    (void)state;

    for (size_t bytes = 0; bytes <= sizeof(memory); bytes++) {
        Zone *zone;
        ZoneStats stats;

        memset(memory, 0, sizeof(memory));
        zone = init_zone(memory, bytes, test_secret);

        if (bytes < PAIR_BYTES) {
            assert_null(zone);
            continue;
        }

        assert_non_null(zone);
        stats = stats_of(zone);
        assert_int_equal(stats.evicted, 0);
        assert_int_equal(stats.refused, 0);
        assert_true(stats.slots >= slots && stats.slots >= PAIR_SLOTS);
        assert_in_range(bytes - 16 * stats.slots, kZoneAlign, kZoneAlign + 127);
        slots = stats.slots;
    }
}

static void test_zone_count(void **state) {
    Policy policy = evicting(MINUTE_MS);
    Zone *zone = make_zone(MEGABYTE_ZONE_BYTES);
    uint64_t start_ms = NOW_MS - NOW_MS % MINUTE_MS;

    (void)state;

    assert_int_equal(count_of(zone, &policy, start_ms), 0);

    for (uint64_t key = 0; key < 3000; key++) {
        uint64_t at_ms = start_ms + key % 3 * MINUTE_MS;

        assert_true(admits(zone, &policy, key, 5, 1, at_ms));
        admits(zone, &policy, key + 3000, 5, 0, at_ms);
        admits(zone, &policy, key + 6000, 5, 6, at_ms);
    }

    assert_int_equal(count_of(zone, &policy, start_ms + 2 * MINUTE_MS), 2000);
    assert_int_equal(count_of(zone, &policy, start_ms + 4 * MINUTE_MS - 1), 1000);
    assert_int_equal(count_of(zone, &policy, start_ms + 4 * MINUTE_MS), 0);
    free(zone);
}

/* A part of a zone tells how many of its keys are live, and nothing if it has none. */
static void test_zone_count_of_a_part(void **state) {
    Policy policy = evicting(MINUTE_MS);
    Zone *zone = make_zone(MEGABYTE_ZONE_BYTES);
    uint64_t part = MEGABYTE_ZONE_BYTES / 2;

    (void)state;

    assert_int_equal(zone->keys(policy, NOW_MS, 1, 7, part / 32), 7);

    /* unused pages are passed, not read, so that few keys of a large zone are exact */
    assert_int_equal(zone->keys(policy, NOW_MS, 1, 7, part), 0);
    admits(zone, &policy, 1, 5, 1, NOW_MS);
    assert_int_equal(zone->keys(policy, NOW_MS, 1, 7, part / 8), 1);

    for (uint64_t key = 0; key < 10000; key++) {
        admits(zone, &policy, key, 5, 1, NOW_MS + key % 2 * 2 * MINUTE_MS);
    }

    assert_in_range(zone->keys(policy, NOW_MS + 2 * MINUTE_MS, 1, 10000, part), 4500, 5500);
    free(zone);
}

/* ---- clocks that differ ---- */

/* Returns the tag of the only key of a zone. */
static uint64_t only_tag(Zone *zone) {
    WordSlots slots(zone);

    for (uint64_t i = 0; i < PAIR_SLOTS; i++) {
        uint64_t tag = slots.slot(i / Line::kSlots, i % Line::kSlots).tag.load();

        if (tag != 0) { return tag; }
    }

    return 0;
}

/* A worker whose clock is behind, in the epoch before, does not take a key's tag back to
 * that. */
static void test_no_clock_behind_takes_a_tag_back(void **state) {
    const Algorithm algorithms[] = {Algorithm::kCounter, Algorithm::kFixed, Algorithm::kTokenBucket,
                                    Algorithm::kLeakyBucket};

    (void)state;

    for (Algorithm algorithm : algorithms) {
        Policy policy = evicting(60 * MINUTE_MS);

        policy.algorithm = algorithm;
        policy.burst = 20;

        Zone *zone = make_zone_for(&policy, PAIR_BYTES);
        const Policy own = with_window(policy, {100, Calendar::kNone});
        const uint64_t begin_ms = 1000000 * EPOCH_MS;

        assert_true(admits(zone, &own, 1, 10, 1, begin_ms));

        uint64_t tag = only_tag(zone);

        for (uint64_t behind_ms = 1; behind_ms <= BEHIND_MS; behind_ms *= 2) {
            assert_true(admits(zone, &own, 1, 10, 1, begin_ms - behind_ms));
            assert_int_equal(only_tag(zone), tag);
        }

        free(zone);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sixty_thousand_keys_in_a_megabyte),
        cmocka_unit_test(test_a_million_keys_in_sixteen_megabytes),
        cmocka_unit_test(test_a_pair_holds_eight_keys),
        cmocka_unit_test(test_idle_keys_start_afresh),
        cmocka_unit_test(test_idle_for_lifetimes),
        cmocka_unit_test(test_epochs_pass_over_busy_keys),
        cmocka_unit_test(test_nothing_ends_while_a_clock_behind_counts_it),
        cmocka_unit_test(test_unused_slots_are_taken_before_what_ended),
        cmocka_unit_test(test_no_clock_behind_takes_a_tag_back),
        cmocka_unit_test(test_claims_of_the_dead_before_the_key),
        cmocka_unit_test(test_nothing_outside_the_zone_is_touched),
        cmocka_unit_test(test_init_needs_a_header_and_a_group),
        cmocka_unit_test(test_zone_count),
        cmocka_unit_test(test_zone_count_of_a_part),
    };

    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
