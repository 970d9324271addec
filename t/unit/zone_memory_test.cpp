/* Copyright (C) the limit_sliding authors */

/* What a zone's memory has room for beside the table. */

#include "zone_memory.hpp"

static void takes_a_small_part(void **state) {
    static const size_t sizes[] = {16384, 28672, 61440, ZONE_BYTES, 64 << 20};

    (void)state;

    for (size_t i = 0; i < LENGTH(sizes); i++) {
        ZoneMemory memory = make_memory(sizes[i]);
        char *begin = (char *)memory.counters;

        assert_true((char *)memory.offenders >= begin + memory.nstatistics * 128);
        assert_true((char *)memory.overrides > (char *)memory.offenders);
        assert_true((char *)memory.offenders < begin + memory.bytes);
        assert_int_equal(memory.bytes % kZoneAlign, 0);
        size_t rest = memory.bytes - OWN_LIMITS_BYTES;
        assert_true(rest < sizes[i] / 14);
        assert_true(sizes[i] < ZONE_BYTES || rest < sizes[i] / 60);
        assert_true(sizes[i] < ZONE_BYTES || memory.nstatistics == 32);

        free_memory(&memory, sizes[i]);
    }
}

/* As much again for limits that are remembered, where there are such. */
static void has_room_for_limits_of_keys(void **state) {
    static const size_t sizes[] = {16384, ZONE_BYTES, 64 << 20};

    (void)state;

    for (size_t i = 0; i < LENGTH(sizes); i++) {
        ZoneMemory none = make_memory(sizes[i]);
        ZoneMemory both = make_memory_of(sizes[i], ZoneMemory::kRedis | ZoneMemory::kVariables);
        char *end = (char *)both.counters + both.bytes;

        assert_null(none.redis_overrides);
        assert_non_null(none.variable_overrides);
        assert_true(both.bytes < none.bytes + sizes[i] / 9);
        assert_true((char *)both.redis_overrides > (char *)both.offenders);
        assert_true((char *)both.variable_overrides > (char *)both.redis_overrides);

        uint64_t told = sizes[i] / 300, last = sizes[i] / 450;
        uint64_t held_told = 0, held_last = 0;

        for (uint64_t key = 1; key <= told; key++) {
            both.redis_overrides->set(key * SPREAD, {LIMIT_MAX, {}});
        }

        for (uint64_t key = 1; key <= last; key++) {
            both.variable_overrides->set(key * SPREAD, {1, {}});
        }

        for (uint64_t key = 1; key <= told; key++) {
            held_told += both.redis_overrides->find(key * SPREAD).limit == LIMIT_MAX;
            held_last += both.variable_overrides->find(key * SPREAD).limit == 1;
        }

        assert_true(held_told > told * 4 / 5);
        assert_true(held_last > last * 3 / 4);

        for (char *p = end; p < (char *)both.counters + sizes[i]; p++) {
            assert_int_equal(*p, 0);
        }

        free_memory(&none, sizes[i]);
        free_memory(&both, sizes[i]);
    }
}

/* Returns how many keys are banned of some whose hashes are all in one line, unless a
 * secret is mixed into them. */
static uint64_t ban_neighbours(ZoneMemory *memory) {
    for (uint64_t hash = 1; hash <= 20; hash++) {
        memory->bans->set(hash, {MINUTE_MS, 0}, {MINUTE_MS, MINUTE_MS, MINUTE_MS, 1}, NOW_MS);
    }

    return memory->bans->banned(NOW_MS, UINT64_MAX);
}

/* Hashes that other nodes know are no secret. */
static void mixes_a_secret_into_common_hashes(void **state) {
    ZoneMemory none = make_memory(ZONE_BYTES);
    ZoneMemory local = make_memory_of(ZONE_BYTES, ZoneMemory::kBans);
    ZoneMemory common = make_memory_of(ZONE_BYTES, ZoneMemory::kBans | ZoneMemory::kRedis);

    (void)state;

    assert_null(none.bans);
    assert_int_equal(ban_neighbours(&local), 4);
    assert_int_equal(ban_neighbours(&common), 20);

    free_memory(&none, ZONE_BYTES);
    free_memory(&local, ZONE_BYTES);
    free_memory(&common, ZONE_BYTES);
}

/* All entries, texts and limits are used, and nothing after them. */
static void stays_within_it(void **state) {
    static const size_t sizes[] = {16384, 28672, ZONE_BYTES};

    (void)state;

    for (size_t i = 0; i < LENGTH(sizes); i++) {
        ZoneMemory memory = make_memory(sizes[i]);
        char *end = (char *)memory.counters + memory.bytes;
        char text[kOffenderKeyBytes];

        memset(text, 0xff, sizeof(text));

        for (uint64_t key = 1; key < 1000; key++) {
            memory.overrides->set(key * SPREAD, {{LIMIT_MAX, {}}, kNoEnd, 0}, 0);
            add_offender(memory, key * SPREAD, {(const char *)text, sizeof(text)}, UINT32_MAX,
                         NOW_MS);
        }

        memset(&memory.counters[memory.nstatistics - 1], 0xff, sizeof(*memory.counters));

        Override own;
        assert_true(memory.overrides->find(
            SPREAD, [] { return 0; }, &own));
        assert_int_equal(own.limit, LIMIT_MAX);

        for (char *p = end; p < (char *)memory.counters + sizes[i]; p++) {
            assert_int_equal(*p, 0);
        }

        free_memory(&memory, sizes[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_a_small_part),
        cmocka_unit_test(has_room_for_limits_of_keys),
        cmocka_unit_test(mixes_a_secret_into_common_hashes),
        cmocka_unit_test(stays_within_it),
    };

    return cmocka_run_group_tests_name("zone memory", tests, NULL, NULL);
}
