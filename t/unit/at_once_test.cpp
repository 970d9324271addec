/* Copyright (C) the limit_sliding authors */

/* Every algorithm admits exactly what it has room for, at once. */

#include "exact.hpp"
#include "support.hpp"
#include "zone.hpp"

#define ZONE_BYTES 16384

static uint64_t admitted_at_once(Zone *zone, const Policy *policy, uint32_t limit,
                                 uint64_t now_ms) {
    uint32_t cost = (uint32_t)(exact_capacity(policy, limit) / 1000) + 1;
    uint64_t total = 0;

    for (; cost > 0; cost /= 2) {
        while (admits(zone, policy, 1, limit, cost, now_ms)) {
            total += cost;
        }
    }

    return total;
}

/* Of all algorithms; whole requests are never rounded. */
static void check_at_once(void *memory, uint64_t window_ms, uint32_t limit, uint32_t burst) {
    for (Algorithm algorithm : algorithms) {
        Policy policy = {.window_ms = window_ms, .algorithm = algorithm, .burst = burst};
        Zone *zone = zone_of(memory, ZONE_BYTES, &policy, 0);
        uint64_t admitted = admitted_at_once(zone, &policy, limit, 1000 * DAY_MS + 1);

        if (admitted != exact_capacity(&policy, limit)) {
            fail_msg("algorithm %d, window %llu ms, limit %u, burst %u:"
                     " %llu at once",
                     number_of(algorithm), (unsigned long long)window_ms, limit, burst,
                     (unsigned long long)admitted);
        }
    }
}

static void test_at_once(void **state) {
    static const uint64_t windows_ms[]
        = {100, SECOND_MS, MINUTE_MS, 60 * MINUTE_MS, DAY_MS, 30ull * DAY_MS};
    static const uint32_t limits[] = {1, 3, 100, 12345, LIMIT_MAX};
    static const uint32_t bursts[] = {0, 1, 100, 54321, LIMIT_MAX};
    void *memory = zone_memory(ZONE_BYTES);

    (void)state;

    for (size_t w = 0; w < LENGTH(windows_ms); w++) {
        for (size_t l = 0; l < LENGTH(limits); l++) {
            for (size_t b = 0; b < LENGTH(bursts); b++) {
                check_at_once(memory, windows_ms[w], limits[l], bursts[b]);
            }
        }
    }

    free(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_once),
    };

    return cmocka_run_group_tests_name("at_once", tests, NULL, NULL);
}
