/* Copyright (C) the limit_sliding authors */

/*
 * Histories of events, algorithm=log and counter with a precision: what is
 * given back late, what a full zone has forgotten, and damaged memory.
 */

#include "support.hpp"

#include <stdbool.h>

#define KEY 1
#define NOW_MS (PRESENT * MINUTE_MS)
#define ZONE_BYTES (kZoneAlign + 256 * 1024)

static uint64_t used_of(Zone *zone, const Policy *policy, uint32_t limit, uint64_t now_ms) {
    return limit - remaining_of(zone, policy, KEY, limit, now_ms);
}

/* ---- what is given back ---- */

/* A key that was forgotten has nothing of what is given back. */
static void test_refund_after_forget(void **state) {
    const Policy policies[] = {log_of(MINUTE_MS), parts_of(MINUTE_MS, 10)};

    (void)state;

    for (size_t i = 0; i < LENGTH(policies); i++) {
        const Policy *policy = &policies[i];

        for (uint64_t later_ms = 0; later_ms < 3; later_ms++) {
            Zone *zone = make_zone_for(policy, ZONE_BYTES);
            Claim first = acquire(zone, policy, KEY, 10, 5, NOW_MS);
            Verdict verdict;

            first.forget(NOW_MS);
            assert_true(admits(zone, policy, KEY, 10, 1, NOW_MS + later_ms));
            limit_sliding::release(&first, 1, NOW_MS + later_ms);

            /* of a history of the same millisecond it may be that one unit */
            assert_in_range(used_of(zone, policy, 10, NOW_MS + later_ms), later_ms > 0, 1);

            first = acquire(zone, policy, KEY, 10, 11, NOW_MS + later_ms);
            verdict = first.describe(NOW_MS + later_ms);
            assert_in_range(verdict.excess, 1000, 2000);
            assert_true(verdict.reset_ms <= MINUTE_MS + MINUTE_MS / 10);
            free(zone);
        }
    }
}

/* Nor has it if a worker whose clock is behind begins its history again, by the former name and
 * before the time of what is given back. */
static void test_refund_after_forget_by_a_clock_behind(void **state) {
    const Policy policies[] = {log_of(MINUTE_MS), parts_of(MINUTE_MS, 10)};

    (void)state;

    for (const Policy &policy : policies) {
        Zone *zone = make_zone_for(&policy, ZONE_BYTES);
        assert_true(admits(zone, &policy, KEY, 10, 1, NOW_MS - 1));

        Claim last = acquire(zone, &policy, KEY, 10, 5, NOW_MS);
        last.forget(NOW_MS);
        assert_true(admits(zone, &policy, KEY, 10, 2, NOW_MS - 1));
        limit_sliding::release(&last, 1, NOW_MS);
        assert_int_equal(used_of(zone, &policy, 10, NOW_MS), 2);
        free(zone);
    }
}

/* What is given back counts no more, though others came since. */
static void test_refund_of_older_events(void **state) {
    const Policy policies[]
        = {log_of(SECOND_MS), log_of(100), parts_of(SECOND_MS, 20), parts_of(100, 60)};
    static Claim claims[990];

    (void)state;

    for (size_t i = 0; i < LENGTH(policies); i++) {
        const Policy *policy = &policies[i];
        Zone *zone = make_zone_for(policy, ZONE_BYTES);
        uint64_t now_ms = NOW_MS;

        for (size_t j = 0; j < LENGTH(claims); j++) {
            now_ms = NOW_MS + j / 40;
            claims[j] = acquire(zone, policy, KEY, 1000, 1, now_ms);
            assert_int_equal(claims[j].outcome, Outcome::kAdmitted);
        }

        now_ms += 2;

        for (size_t j = 0; j < LENGTH(claims); j++) {
            if (j % 11 != 0) { limit_sliding::release(&claims[j], 1, now_ms); }
        }

        assert_int_equal(used_of(zone, policy, 1000, now_ms), 90);
        assert_true(admits(zone, policy, KEY, 1000, 910, now_ms));
        assert_false(admits(zone, policy, KEY, 1000, 1, now_ms));
        assert_int_equal(used_of(zone, policy, 1000, now_ms + 2 * SECOND_MS), 0);
        free(zone);
    }
}

/*
 * With what was given back, a key uses more in two windows than totals hold.
 * A search for room must not take a total that has wrapped for little.
 */
static void test_refunds_until_totals_wrap(void **state) {
    Policy policy = log_of(SECOND_MS);
    Zone *zone = make_zone_for(&policy, ZONE_BYTES);
    const uint32_t costs[] = {1, 3000000, 1, 3000000, 1};
    const uint32_t last = (1u << 23) - 6000000 - 2;
    Claim claims[LENGTH(costs)];

    (void)state;

    for (size_t i = 0; i < LENGTH(costs); i++) {
        claims[i] = acquire(zone, &policy, KEY, LIMIT_MAX, costs[i], NOW_MS + i);
        assert_int_equal(claims[i].outcome, Outcome::kAdmitted);

        if (i == 2) { limit_sliding::release(&claims[1], 1, NOW_MS + i); }
    }

    assert_true(admits(zone, &policy, KEY, LIMIT_MAX, last, NOW_MS + 1005));

    for (uint32_t room = 0; room < 10; room++) {
        assert_false(admits(zone, &policy, KEY, LIMIT_MAX, LIMIT_MAX - room, NOW_MS + 1006));
    }

    free(zone);
}

#define REQUESTS 3000
#define OPEN_MAX 40

struct request_t {
    uint64_t time_ms;
    uint32_t cost;
    bool is_given_back;
};

/* What counts of those requests in the window that ends now. */
static uint64_t counted(const request_t *requests, size_t n, uint64_t window_ms, uint64_t now_ms) {
    uint64_t sum = 0;

    while (n-- > 0 && requests[n].time_ms + window_ms > now_ms) {
        sum += requests[n].is_given_back ? 0 : requests[n].cost;
    }

    return sum;
}

/* When a rejected request may come again, it is admitted, and stays so. */
static void check_retry(const Claim *rejected, uint64_t now_ms) {
    uint64_t window_ms = rejected->policy->window_ms;
    Claim claim = *rejected;
    Verdict verdict;

    verdict = rejected->describe(now_ms);
    claim.purpose = Purpose::kLook;

    for (uint64_t i = 0; i < 50; i++) {
        limit_sliding::acquire(&claim, 1,
                               now_ms + verdict.retry_after_ms + i * (1 + window_ms / 1000));
        assert_int_equal(claim.outcome, Outcome::kAdmitted);
    }
}

/*
 * Of the units that were given back in a window, only the newest 4,194,303 count.  Retry-After
 * must count no more either, and be exact while the oldest of these units fade.
 */
static void test_refunds_of_more_than_count(void **state) {
    const Policy policies[]
        = {log_of(SECOND_MS), parts_of(SECOND_MS, 10), parts_of(SECOND_MS, 10, true)};
    const uint32_t given = 2500000;
    const uint64_t gap_ms = 160; /* whole parts of the log's refunds, of 16 ms each */

    (void)state;

    for (const Policy &policy : policies) {
        Zone *zone = make_zone_for(&policy, ZONE_BYTES);
        uint64_t now_ms = NOW_MS;

        for (unsigned i = 0; i < 3; i++, now_ms += gap_ms) {
            Claim claim = acquire(zone, &policy, KEY, LIMIT_MAX, given, now_ms);
            assert_int_equal(claim.outcome, Outcome::kAdmitted);
            now_ms += gap_ms;
            assert_true(admits(zone, &policy, KEY, LIMIT_MAX, 1, now_ms));
            limit_sliding::release(&claim, 1, now_ms);
        }

        for (uint32_t room = 0; room < given; room += 99999) {
            Claim look = acquire(zone, &policy, KEY, LIMIT_MAX, LIMIT_MAX - room, now_ms);
            assert_int_equal(look.outcome, Outcome::kRejected);
            check_retry(&look, now_ms);

            uint64_t at_ms = now_ms + look.describe(now_ms).retry_after_ms;
            look.purpose = Purpose::kLook;
            limit_sliding::acquire(&look, 1, at_ms - 1);
            assert_int_equal(look.outcome, Outcome::kRejected);
        }

        free(zone);
    }
}

/*
 * Requests come at random times, and many are given back a little later.  A log
 * never admits more than the limit of what was not given back, and rejects no
 * more than what its credits end too early: a 64th of the window.
 */
static void test_refunds_are_exact(void **state) {
    static request_t requests[REQUESTS];
    uint64_t random = 7;

    (void)state;

    for (unsigned round = 0; round < draws(60); round++) {
        uint64_t w = 100 + random_below(&random, 2000);
        Policy policy = log_of(w);
        Zone *zone = make_zone_for(&policy, ZONE_BYTES);
        uint32_t limit = 1 + (uint32_t)random_below(&random, 200);
        uint64_t gap_ms = 2 + random_below(&random, 8);
        uint64_t now_ms = NOW_MS;
        Claim open[OPEN_MAX];
        size_t which[OPEN_MAX], n_open = 0, n = 0;

        for (unsigned i = 0; i < 2 * REQUESTS && n < REQUESTS; i++) {
            uint32_t cost = 1 + (uint32_t)random_below(&random, 3);
            Claim claim;
            uint64_t used;

            now_ms += random_below(&random, gap_ms);

            while (n_open > 0 && random_below(&random, 3) == 0) {
                size_t k = random_below(&random, n_open);

                limit_sliding::release(&open[k], 1, now_ms);
                requests[which[k]].is_given_back = true;
                open[k] = open[--n_open];
                which[k] = which[n_open];
            }

            if (cost > limit) { continue; }

            used = counted(requests, n, w, now_ms);
            claim = acquire(zone, &policy, KEY, limit, cost, now_ms);

            if (claim.outcome == Outcome::kAdmitted) {
                assert_true(used + cost <= limit);
                requests[n] = (request_t){now_ms, cost, false};

                if (n_open < OPEN_MAX && random_below(&random, 2) == 0) {
                    open[n_open] = claim;
                    which[n_open++] = n;
                }

                n++;
                continue;
            }

            check_retry(&claim, now_ms);

            /* at most what is still counted though it was given back */

            {
                uint64_t early = 0;

                for (size_t k = n; k-- > 0;) {
                    uint64_t end_ms = requests[k].time_ms + w;

                    if (end_ms <= now_ms) { break; }

                    if (requests[k].is_given_back && end_ms - now_ms <= w / 64 + 1) {
                        early += requests[k].cost;
                    }
                }

                assert_true(used + cost + early > limit);
            }
        }

        free(zone);
    }
}

/* ---- a key that comes back ---- */

/*
 * A history is named by the last 25 bits of the time it began.  One of the same
 * name has nothing of what the former one left in its pages.
 */
static void test_same_name(void **state) {
    Policy policy = log_of(SECOND_MS);
    Zone *zone = make_zone_for(&policy, ZONE_BYTES);

    (void)state;

    for (unsigned round = 0; round < 3; round++) {
        uint64_t now_ms = NOW_MS + round * (1ull << 25);
        unsigned admitted = 0;

        for (unsigned i = 0; i < 100; i++) {
            admitted += admits(zone, &policy, KEY, 40, 1, now_ms + i);
        }

        assert_int_equal(admitted, 40);
    }

    free(zone);
}

/* ---- clocks that differ ---- */

/*
 * A worker whose clock is a little ahead takes slots for other keys that are
 * over for it, and not yet for a worker that is behind.
 */
static void test_slots_taken_by_a_clock_ahead(void **state) {
    static const uint64_t ends_ms[] = {12, 25, 39};
    const Policy policies[] = {log_of(SECOND_MS), parts_of(SECOND_MS, 10)};

    (void)state;

    for (size_t i = 0; i < LENGTH(policies) * LENGTH(ends_ms); i++) {
        const Policy *policy = &policies[i % LENGTH(policies)];
        Zone *zone = make_zone_for(policy, kZoneAlign + 32 * 1024);
        uint64_t end_ms = NOW_MS + SECOND_MS + ends_ms[i / LENGTH(policies)];
        uint32_t left;

        if (policy->algorithm != Algorithm::kLog) { end_ms = NOW_MS + SECOND_MS + SECOND_MS / 10; }

        for (unsigned j = 0; j < 40; j++) {
            assert_true(admits(zone, policy, KEY, 40, 1, NOW_MS + j));
        }

        left = remaining_of(zone, policy, KEY, 40, end_ms - 2);

        for (uint64_t key = 100; key < 160; key++) {
            assert_true(admits(zone, policy, key, 40, 1, end_ms + 1));
        }

        assert_int_equal(stats_of(zone).evicted, 0);
        assert_int_equal(remaining_of(zone, policy, KEY, 40, end_ms - 2), left);
        free(zone);
    }
}

/* ---- a full zone ---- */

/*
 * Many keys in a small zone take each other's events.  What is forgotten counts
 * no more; nothing that is over counts again.
 */
static void test_overfull_zone(void **state) {
    enum { KEYS = 40, TIMES = 4096 };
    static uint64_t times_ms[KEYS][TIMES];
    static size_t counts[KEYS];
    Policy policy = log_of(3000);
    Zone *zone = make_zone_for(&policy, kZoneAlign + 8 * 1024);
    uint64_t random = 3;
    uint64_t now_ms = NOW_MS;
    unsigned rejected = 0;

    (void)state;
    memset(counts, 0, sizeof(counts));

    for (unsigned i = 0; i < draws(300000); i++) {
        size_t key = random_below(&random, KEYS);
        uint32_t limit = 60;
        uint64_t used = 0;
        uint64_t *times = times_ms[key];

        /* most requests are of few keys, and now and then there are none */

        key = random_below(&random, 3) == 0 ? key : key % 5;
        times = times_ms[key];
        now_ms += random_below(&random, 3) == 0;
        now_ms += random_below(&random, 20000) == 0 ? 2900 : 0;

        for (size_t n = counts[key]; n-- > 0;) {
            if (n + TIMES < counts[key] || times[n % TIMES] + policy.window_ms <= now_ms) { break; }

            used++;
        }

        if (admits(zone, &policy, 100 + key, limit, 1, now_ms)) {
            times[counts[key]++ % TIMES] = now_ms;
        } else {
            rejected++;
            assert_true(used + 1 > limit);
        }
    }

    assert_true(rejected > 1000);
    assert_true(stats_of(zone).evicted > 1000);
    free(zone);
}

/* ---- damaged memory ---- */

/* Nor does a key stay refused for the oldest event of its ring, if that is missing: it begins
 * anew. */
static void test_damage_of_an_older_event(void **state) {
    Policy policy = log_of(MINUTE_MS);

    (void)state;

    for (unsigned n : {RING_LENGTH - 1, RING_LENGTH + 3}) {
        Zone *zone = make_zone_for(&policy, RING_PAIR_BYTES);
        uint64_t *words = (uint64_t *)zone;
        const uint64_t oldest_ms = NOW_MS + (n > RING_LENGTH ? n - RING_LENGTH : 0);
        uint64_t now_ms = NOW_MS;

        for (unsigned i = 0; i < n; i++) {
            assert_true(admits(zone, &policy, KEY, 100, 1, now_ms++));
        }

        for (size_t i = 0; i < RING_PAIR_BYTES / sizeof(*words); i++) {
            if ((words[i] & 0xfffffffff) == oldest_ms) { words[i] = 0; }
        }

        for (unsigned i = 0; i < 3; i++) {
            admits(zone, &policy, KEY, 100, 1, now_ms++);
        }

        assert_true(admits(zone, &policy, KEY, 100, 1, now_ms));
        assert_in_range(used_of(zone, &policy, 100, now_ms), 1, 4);
        free(zone);
    }
}

/* A worker that has closed an event and died leaves the tick to a further event, which may be in
 * the first place of the ring: the totals tell which one is later. */
static void test_two_events_of_a_tick(void **state) {
    Policy policy = log_of(MINUTE_MS);
    Zone *zone = make_zone_for(&policy, RING_PAIR_BYTES);
    uint64_t *words = (uint64_t *)zone;
    const uint64_t last_ms = NOW_MS + RING_LENGTH - 1;
    KeyShares shares;

    (void)state;

    for (uint64_t now_ms = NOW_MS; now_ms <= last_ms; now_ms++) {
        assert_true(admits(zone, &policy, KEY, 100, 1, now_ms));
    }

    for (size_t i = 0; i < RING_PAIR_BYTES / sizeof(*words); i++) {
        if ((words[i] & 0xfffffffff) == last_ms) { words[i] |= Event::kClosed; }
    }

    assert_true(admits(zone, &policy, KEY, 100, 50, last_ms));
    assert_int_equal(used_of(zone, &policy, 100, last_ms), RING_LENGTH + 50);

    /* the key has used 64 %, and its page has 13 units */
    zone->keys(policy, last_ms, 100, 2, UINT64_MAX, &shares);
    assert_int_equal(shares.keys[0], 1);
    assert_int_equal(shares.keys[3], 1);
    free(zone);
}

/* Whatever is in the zone, every call returns, and a key begins anew. */
static void test_damage(void **state) {
    const Policy policies[]
        = {log_of(SECOND_MS), parts_of(SECOND_MS, 10), evicting(SECOND_MS), parts_of(SECOND_MS, 0)};
    const uint32_t limits[] = {3, 12, 20, 100, 1000};
    uint64_t random = 5;

    (void)state;

    for (unsigned round = 0; round < draws(3000); round++) {
        const Policy *policy = &policies[random_below(&random, LENGTH(policies))];
        size_t bytes = kZoneAlign + 8 * 1024;
        Zone *zone = make_zone_for(policy, bytes);
        uint64_t *words = (uint64_t *)zone;
        size_t first = kZoneAlign / sizeof(uint64_t);
        uint64_t now_ms = NOW_MS;
        uint32_t limit = limits[random_below(&random, LENGTH(limits))];

        for (unsigned i = 0; i < 40; i++) {
            admits(zone, policy, random_below(&random, 3), limit, 1, ++now_ms);
        }

        for (unsigned i = 0; i < 40; i++) {
            size_t n = first + random_below(&random, 1024);

            if (words[n] != 0) { words[n] ^= 1ull << random_below(&random, 64); }

            words[first + random_below(&random, 1024)]
                ^= random_below(&random, 40) == 0 ? random_next(&random) : 0;

            now_ms += 1 + random_below(&random, 20) * random_below(&random, 20);
            limit = limits[random_below(&random, LENGTH(limits))];
            admits(zone, policy, random_below(&random, 3), limit, 1, now_ms);
            remaining_of(zone, policy, random_below(&random, 3), limit, now_ms);
        }

        free(zone);
    }
}

/* Time may begin with the first event. */
static void test_refund_in_the_first_part(void **state) {
    Policy policy = parts_of(10 * SECOND_MS, 8);
    Zone *zone = make_zone_for(&policy, ZONE_BYTES);
    Claim first = acquire(zone, &policy, KEY, 47, 1, 1);
    Claim look;
    Verdict verdict;

    (void)state;

    assert_true(admits(zone, &policy, KEY, 47, 8, 1));
    assert_true(admits(zone, &policy, KEY, 47, 2, 2500));
    limit_sliding::release(&first, 1, 2600);

    look = acquire(zone, &policy, KEY, 47, 0, 2600);
    verdict = look.describe(2600);
    assert_int_equal(verdict.remaining, 37);
    assert_int_equal(remaining_of(zone, &policy, KEY, 47, 2600 + verdict.reset_ms), 38);
    assert_int_equal(remaining_of(zone, &policy, KEY, 47, 2600 + verdict.reset_ms - 1), 37);
    free(zone);
}

/* ---- years ---- */

/* Ticks have 36 bits, which are 795 days.  A log of 30 days is exact for longer, whatever
 * the pace of its key: pages of old events are still in their slots then.  In every other
 * round no rest ends the history. */
static void test_years(void **state) {
    const uint64_t kWindowMs = 30 * DAY_MS;
    const Policy policy = log_of(kWindowMs);
    uint64_t random = 1;
    uint64_t longest_ms = 0;

    (void)state;

    for (unsigned round = 0; round < draws(300); round++) {
        static uint64_t times[64 * 1024];
        uint64_t since_ms = 0; /* some event has counted at all times */
        Zone *zone = make_zone_for(&policy, ZONE_BYTES);
        const uint32_t limit = 1 + random_below(&random, round % 3 == 0 ? 14 : 150);
        uint64_t now_ms = NOW_MS;
        size_t first = 0, n = 0;

        while (now_ms < NOW_MS + 4 * YEAR_MS && n < LENGTH(times)) {
            /* bursts, single events, and rests that nearly end the history */
            const uint64_t gaps_ms[] = {1, MINUTE_MS, DAY_MS, kWindowMs, 2 * kWindowMs};
            const uint64_t gap_ms = gaps_ms[random_below(&random, LENGTH(gaps_ms) - round % 2)];
            const uint64_t requests
                = random_below(&random, 4) == 0 ? random_below(&random, 2 * limit) : 1;

            now_ms += 1 + random_below(&random, gap_ms);
            while (first < n && times[first] + kWindowMs <= now_ms) {
                first++;
            }

            if (first == n) { since_ms = now_ms; }

            longest_ms = std::max(longest_ms, now_ms - since_ms);

            for (uint64_t i = 0; i < requests && n < LENGTH(times); i++) {
                const uint64_t used = n - first;
                const uint64_t cost = random_below(&random, 8) != 0; /* 0: looks */
                Claim claim = acquire(zone, &policy, KEY, limit, cost, now_ms);
                const Verdict verdict = claim.describe(now_ms);
                const bool admitted = claim.outcome == Outcome::kAdmitted;
                const uint64_t taken = admitted ? cost : 0;

                assert_int_equal(admitted, used + cost <= limit);
                assert_int_equal(verdict.remaining, limit - used - taken);
                assert_int_equal(verdict.retry_after_ms,
                                 admitted ? 0 : times[first] + kWindowMs - now_ms);
                assert_in_range(verdict.reset_ms, 0, kWindowMs + 1);
                if (taken == 0) { continue; }

                if (random_below(&random, 8) == 0) {
                    limit_sliding::release(&claim, 1, now_ms);
                } else {
                    times[n++] = now_ms;
                }
            }
        }

        free(zone);
    }

    assert_true(longest_ms > 800 * DAY_MS);
}

/* So it is if a burst follows a slow pace: a search back through the burst reaches events whose
 * ticks have wrapped. */
static void test_burst_after_years(void **state) {
    const Policy policy = log_of(30 * DAY_MS);
    constexpr uint32_t kLimit = 4000;

    (void)state;

    for (uint64_t gap_ms : {DAY_MS / 2, DAY_MS, 5 * DAY_MS, 29 * DAY_MS}) {
        for (uint64_t days = 700; days < 1700; days += 100) {
            Zone *zone = make_zone_for(&policy, 2 * ZONE_BYTES);
            uint64_t now_ms = NOW_MS, slow = 0;

            for (; now_ms < NOW_MS + days * DAY_MS; now_ms += gap_ms) {
                assert_true(admits(zone, &policy, KEY, kLimit, 1, now_ms));
                slow = 1 + (30 * DAY_MS - 1) / gap_ms;
            }

            now_ms -= gap_ms;

            for (uint64_t i = 1; i < kLimit - slow; i++) {
                assert_true(admits(zone, &policy, KEY, kLimit, 1, now_ms + i));
                if (i % 16 != 0) { continue; }
                assert_int_equal(used_of(zone, &policy, kLimit, now_ms + i), slow + i);

                const Claim claim = acquire(zone, &policy, KEY, kLimit, kLimit, now_ms + i);

                assert_in_range(claim.describe(now_ms + i).retry_after_ms, 30 * DAY_MS - 1,
                                30 * DAY_MS);
            }

            free(zone);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refund_in_the_first_part),
        cmocka_unit_test(test_years),
        cmocka_unit_test(test_burst_after_years),
        cmocka_unit_test(test_refund_after_forget),
        cmocka_unit_test(test_refund_after_forget_by_a_clock_behind),
        cmocka_unit_test(test_refund_of_older_events),
        cmocka_unit_test(test_refunds_until_totals_wrap),
        cmocka_unit_test(test_refunds_of_more_than_count),
        cmocka_unit_test(test_refunds_are_exact),
        cmocka_unit_test(test_same_name),
        cmocka_unit_test(test_slots_taken_by_a_clock_ahead),
        cmocka_unit_test(test_overfull_zone),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_damage_of_an_older_event),
        cmocka_unit_test(test_two_events_of_a_tick),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
