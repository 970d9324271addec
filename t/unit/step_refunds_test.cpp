/* Copyright (C) the limit_sliding authors */

/*
 * A process stops at each one of its accesses to shared memory while it gives
 * back what a log has used, or what it has consumed of the first of two limits,
 * and another process works meanwhile.
 */

#include "step.hpp"
#include "zone.hpp"

#define KEY 1
#define NOW_MS (PRESENT * MINUTE_MS + 1)
#define RINGS_BYTES (kZoneAlign + 16 * 1024)

static struct {
    Claim claims[2];
    uint64_t now_ms;
} given;

static void give_other_back(void) { limit_sliding::release(&given.claims[1], 1, given.now_ms); }

/* What a key still admits, of any cost. */
static uint64_t units_left(Zone *zone, const Policy *policy, uint32_t limit, uint64_t now_ms) {
    uint64_t left = 0;

    for (uint32_t cost = 1u << 22; cost > 0; cost /= 2) {
        for (int i = 0; i < 4; i++) {
            left += admits(zone, policy, KEY, limit, cost, now_ms) ? cost : 0;
        }
    }

    return left;
}

/* Two may give back together what neither alone would be too much. */
static void test_stall_while_totals_would_wrap(void **state) {
    static const uint32_t costs[] = {2000000, 1, 2100000, 2000000, 1};
    Policy policy = evicting(MINUTE_MS);
    uint8_t *start = static_cast<uint8_t *>(zone_memory(RINGS_BYTES));
    Claim claims[LENGTH(costs)];
    Zone *zone;
    uint64_t most = 0;

    (void)state;
    policy.algorithm = Algorithm::kLog;
    zone = Zone::init(step_begin(RINGS_BYTES), RINGS_BYTES, policy, 0, test_secret);

    for (size_t i = 0; i < LENGTH(costs); i++) {
        given.now_ms = NOW_MS + i;
        claims[i] = acquire(zone, &policy, KEY, LIMIT_MAX, costs[i], given.now_ms);
        assert_int_equal(claims[i].outcome, Outcome::kAdmitted);

        if (i == 1) { limit_sliding::release(&claims[0], 1, given.now_ms); }
    }

    given.claims[0] = claims[2];
    given.claims[1] = claims[3];
    memcpy(start, zone, RINGS_BYTES);
    step.stopped = give_other_back;

    do {
        uint64_t left;

        memcpy((void *)zone, start, RINGS_BYTES);
        step.stop_at++;
        STEP_THROUGH(limit_sliding::release(&given.claims[0], 1, given.now_ms));
        left = units_left(zone, &policy, LIMIT_MAX, given.now_ms + 1);
        most = left > most ? left : most;
    } while (step.accesses >= step.stop_at);

    step_end();
    free(start);
    assert_in_range(most, 1, LIMIT_MAX - 2);
}

static struct {
    Zone *zones[2];
    Policy policy;
} two;

static void consume_second(void) { admits(two.zones[1], &two.policy, KEY, 1, 1, NOW_MS); }

/* Nothing of the first limit is consumed if another process has used up the second one. */
static void test_stall_before_the_second_limit(void **state) {
    constexpr size_t kBytes = 4096;
    auto *memory = static_cast<uint8_t *>(step_begin(2 * kBytes));
    auto *start = static_cast<uint8_t *>(malloc(2 * kBytes));
    bool is_admitted = false;
    unsigned rejections = 0;

    (void)state;
    two.policy = evicting(MINUTE_MS);

    for (size_t i = 0; i < 2; i++) {
        two.zones[i] = Zone::init(memory + i * kBytes, PAIR_BYTES, two.policy, 0, test_secret);
        assert_non_null(two.zones[i]);
    }

    memcpy(start, memory, 2 * kBytes);
    step.stopped = consume_second;
    step_stop_everywhere([&] { memcpy(memory, start, 2 * kBytes); },
                         [&] {
                             Claim claims[] = {claim_of(two.zones[0], &two.policy, KEY, 5, 2),
                                               claim_of(two.zones[1], &two.policy, KEY, 1, 1)};

                             is_admitted = claims[limit_sliding::acquire(claims, 2, NOW_MS)].outcome
                                           == Outcome::kAdmitted;
                         },
                         [&] {
                             rejections += !is_admitted;

                             if (remaining_of(two.zones[0], &two.policy, KEY, 5, NOW_MS)
                                 != (is_admitted ? 3 : 5)) {
                                 step_fault("the first limit has other units");
                             }
                         });

    free(start);
    assert_in_range(rejections, 1, step.stop_at - 1);
    step_end_of("two limits");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stall_while_totals_would_wrap),
        cmocka_unit_test(test_stall_before_the_second_limit),
    };

    return cmocka_run_group_tests_name("step_credits", tests, NULL, NULL);
}
