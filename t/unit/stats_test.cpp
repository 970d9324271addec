/*
 * Copyright (C) the limit_sliding authors
 */

/* What a zone's memory holds beside the table. */

#include "support.hpp"

#include "core/zone_memory.hpp"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace limit_sliding;

#define THREADS 4
#define NOW_MS (PRESENT * MINUTE_MS + 1)
#define SPAN_MS kOffenderSpanMs
#define SPREAD 0x9e3779b97f4a7c15ull
#define ZONE_BYTES MEGABYTE_ZONE_BYTES

/* Of memory that processes share. */
static ZoneMemory make_aside_of(size_t bytes, unsigned mask)
{
    ZoneMemory aside;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);
    aside.init(memory, bytes, mask);

    return aside;
}

static ZoneMemory make_aside(size_t bytes)
{
    return make_aside_of(bytes, 0);
}

static void free_aside(ZoneMemory *aside, size_t bytes)
{
    munmap(aside->counters, bytes);
}

static void in_threads(void *(*work)(void *), void *data)
{
    pthread_t thread[THREADS];

    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, work, data), 0);
    }

    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
}

/* ---- where they are ---- */

static void takes_a_small_part(void **state)
{
    static const size_t sizes[] = {16384, 28672, 61440, ZONE_BYTES, 64 << 20};

    (void)state;

    for (size_t i = 0; i < LENGTH(sizes); i++) {
        ZoneMemory aside = make_aside(sizes[i]);
        char *memory = (char *)aside.counters;

        assert_true((char *)aside.overrides >= memory + aside.ncounters * 128);
        assert_true((char *)aside.offenders > (char *)aside.overrides);
        assert_true((char *)aside.offenders < memory + aside.bytes);
        assert_int_equal(aside.bytes % kZoneAlign, 0);
        assert_true(aside.bytes < sizes[i] / 14);
        assert_true(sizes[i] < ZONE_BYTES || aside.bytes < sizes[i] / 60);
        assert_true(sizes[i] < ZONE_BYTES || aside.ncounters == 32);

        free_aside(&aside, sizes[i]);
    }
}

/* As much again for limits that are remembered, where there are such. */
static void has_room_for_limits_of_keys(void **state)
{
    static const size_t sizes[] = {16384, ZONE_BYTES, 64 << 20};

    (void)state;

    for (size_t i = 0; i < LENGTH(sizes); i++) {
        ZoneMemory none = make_aside(sizes[i]);
        ZoneMemory both = make_aside_of(sizes[i], ZoneMemory::kRedis
                                                      | ZoneMemory::kVariables);
        char *end = (char *)both.counters + both.bytes;
        uint64_t held = 0;

        assert_null(none.redis_limits);
        assert_non_null(none.variable_limits);
        assert_true(both.bytes < none.bytes + sizes[i] / 15);
        assert_true((char *)both.redis_limits > (char *)both.offenders);
        assert_true((char *)both.variable_limits > (char *)both.redis_limits);

        for (uint64_t key = 1; key <= sizes[i] / 300; key++) {
            both.redis_limits->set(key * SPREAD, LIMIT_MAX);
            both.variable_limits->set(key * SPREAD, 1);
        }

        for (uint64_t key = 1; key <= sizes[i] / 300; key++) {
            held += both.redis_limits->find(key * SPREAD) == LIMIT_MAX;
            held += both.variable_limits->find(key * SPREAD) == 1;
        }

        assert_true(held > 2 * (sizes[i] / 300) * 4 / 5);

        for (char *p = end; p < (char *)both.counters + sizes[i]; p++) {
            assert_int_equal(*p, 0);
        }

        free_aside(&none, sizes[i]);
        free_aside(&both, sizes[i]);
    }
}

/* All entries, texts and limits are used, and nothing after them. */
static void stays_within_it(void **state)
{
    static const size_t sizes[] = {16384, 28672, ZONE_BYTES};

    (void)state;

    for (size_t i = 0; i < LENGTH(sizes); i++) {
        ZoneMemory aside = make_aside(sizes[i]);
        char *end = (char *)aside.counters + aside.bytes;
        char text[kOffenderKeyBytes];

        memset(text, 0xff, sizeof(text));

        for (uint64_t key = 1; key < 1000; key++) {
            aside.overrides->set(key * SPREAD, LIMIT_MAX);
            aside.offenders->add(key * SPREAD,
                                 {(const char *)text, sizeof(text)}, UINT32_MAX,
                                 NOW_MS);
        }

        memset(&aside.counters[aside.ncounters - 1], 0xff,
               sizeof(*aside.counters));

        assert_int_equal(aside.overrides->find(SPREAD), LIMIT_MAX);

        for (char *p = end; p < (char *)aside.counters + sizes[i]; p++) {
            assert_int_equal(*p, 0);
        }

        free_aside(&aside, sizes[i]);
    }
}

static void sums_counters(void **state)
{
    ZoneMemory aside = make_aside(ZONE_BYTES);
    Counters sum;

    (void)state;

    for (size_t i = 0; i < aside.ncounters; i++) {
        aside.counters[i].requests[kCountPassed] = i;
        aside.counters[i].sources[kSources - 1] = 2;
        aside.counters[i].slots.refused = 1;
    }

    sum = Counters::sum(aside.counters, aside.ncounters);

    assert_int_equal(sum.requests[kCountPassed], 31 * 32 / 2);
    assert_int_equal(sum.requests[kCountDelayed], 0);
    assert_int_equal(sum.sources[kSources - 1], 64);
    assert_int_equal(sum.slots.refused, 32);

    free_aside(&aside, ZONE_BYTES);
}

/* A claim counts where it says, and nowhere else. */
static void counts_slots_where_it_is_told(void **state)
{
    Policy policies[] = {evicting(MINUTE_MS), denying(MINUTE_MS)};

    (void)state;

    for (int i = 0; i < 2; i++) {
        Zone *zone = make_zone_for(&policies[i], PAIR_BYTES);
        SlotCounts counts = {0};

        for (uint64_t key = 0; key < 20; key++) {
            Claim claim = claim_of(zone, &policies[i], key, 5, 1);

            claim.counts = &counts;
            limit_sliding::acquire(&claim, 1, NOW_MS);
            limit_sliding::acquire(&claim, 1, NOW_MS);
        }

        assert_int_equal(counts.used, PAIR_SLOTS);
        assert_int_equal(stats_of(zone).used, 0);
        assert_int_equal(stats_of(zone).evicted, 0);
        assert_int_equal(stats_of(zone).refused, 0);
        assert_int_equal(i == 0 ? counts.evicted : counts.refused,
                         i == 0 ? 20 - PAIR_SLOTS : 2 * (20 - PAIR_SLOTS));

        free(zone);
    }
}

static void estimates_keys(void **state)
{
    Policy policy = evicting(MINUTE_MS);
    Zone *zone = make_zone(ZONE_BYTES);
    uint64_t bytes = ZONE_BYTES / 8;
    uint64_t used, keys;

    (void)state;

    for (uint64_t key = 0; key < 40000; key++) {
        assert_true(admits(zone, &policy, key, 5, 1, NOW_MS));
    }

    used = stats_of(zone).used;
    assert_int_equal(used, 40000);

    assert_int_equal(zone->keys(policy, NOW_MS, 1, used, ZONE_BYTES), 40000);
    assert_int_equal(zone->keys(policy, NOW_MS, 1, used, bytes), 40000);

    for (uint64_t key = 0; key < 40000; key += 4) {
        assert_true(admits(zone, &policy, key, 5, 1, NOW_MS + 2 * MINUTE_MS));
    }

    assert_int_equal(stats_of(zone).used, used);

    keys = zone->keys(policy, NOW_MS + 2 * MINUTE_MS, 1, used, bytes);
    assert_in_range(keys, 9000, 11000);

    assert_int_equal(zone->keys(policy, NOW_MS + 9 * MINUTE_MS, 1, used, bytes),
                     0);
    free(zone);
}

static void forgets_a_key(void **state)
{
    static const Policy policies[] = {
        {MINUTE_MS, Algorithm::kCounter, WhenFull::kEvict, 0, 0},
        {MINUTE_MS, Algorithm::kCounter, WhenFull::kEvict, 10, 0},
        {MINUTE_MS, Algorithm::kLog, WhenFull::kEvict, 0, 0},
        {MINUTE_MS, Algorithm::kFixed, WhenFull::kEvict, 0, 0},
        {MINUTE_MS, Algorithm::kTokenBucket, WhenFull::kEvict, 0, 0},
        {MINUTE_MS, Algorithm::kLeakyBucket, WhenFull::kEvict, 0, 4},
    };

    (void)state;

    for (size_t i = 0; i < LENGTH(policies); i++) {
        Zone *zone = make_zone_for(&policies[i], ZONE_BYTES);
        Claim claim = claim_of(zone, &policies[i], 1, 5, 1);

        claim.forget(NOW_MS);

        for (int turn = 0; turn < 3; turn++) {
            for (int n = 0; n < 5; n++) {
                assert_true(admits(zone, &policies[i], 1, 5, 1, NOW_MS));
            }
            assert_false(admits(zone, &policies[i], 1, 5, 1, NOW_MS));

            claim.forget(NOW_MS);
            assert_int_equal(count_of(zone, &policies[i], NOW_MS), 0);
        }

        assert_int_equal(stats_of(zone).used, 1);
        free(zone);
    }
}

/* ---- limits of single keys ---- */

static void keeps_limits(void **state)
{
    ZoneMemory aside = make_aside(ZONE_BYTES);
    Overrides *own = aside.overrides;

    (void)state;

    assert_int_equal(own->count(), 0);
    assert_int_equal(own->find(1), kLimitUnset);

    /* a hash of zeroes, and neighbours */
    for (uint64_t hash = 0; hash < 20; hash++) {
        assert_true(own->set(hash, (uint32_t)hash + 1));
    }

    assert_true(own->set(UINT64_MAX, LIMIT_MAX));
    assert_true(own->set(3, kUnlimited));
    assert_true(own->set(4, LIMIT_MAX));
    assert_int_equal(own->count(), 21);

    assert_int_equal(own->find(0), 1);
    assert_int_equal(own->find(3), kUnlimited);
    assert_int_equal(own->find(4), LIMIT_MAX);
    assert_int_equal(own->find(19), 20);
    assert_int_equal(own->find(20), kLimitUnset);
    assert_int_equal(own->find(UINT64_MAX), LIMIT_MAX);

    for (uint64_t hash = 0; hash < 20; hash++) {
        assert_true(own->set(hash, kLimitUnset));
        assert_true(own->set(hash, kLimitUnset));
        assert_int_equal(own->find(hash), kLimitUnset);
    }

    assert_int_equal(own->count(), 1);
    free_aside(&aside, ZONE_BYTES);
}

/* Places are used again, so nothing leaks however long it goes on. */
static void has_room_for_what_it_holds(void **state)
{
    ZoneMemory aside = make_aside(ZONE_BYTES);
    Overrides *own = aside.overrides;
    uint64_t held = 0;

    (void)state;

    for (uint64_t key = 0; key < 100000; key++) {
        assert_true(own->set(key * SPREAD, 7));
        if (key >= 100) {
            own->set((key - 100) * SPREAD, kLimitUnset);
        }
    }

    assert_int_equal(own->count(), 100);

    for (uint64_t key = 100000; key < 101000; key++) {
        held += (uint64_t)own->set(key * SPREAD, 8);
    }

    assert_in_range(held, 100, 154);
    assert_int_equal(own->count(), 100 + held);
    assert_int_equal(own->find(99999 * SPREAD), 7);
    assert_true(own->set(99999 * SPREAD, 9));
    assert_int_equal(own->find(99999 * SPREAD), 9);
    free_aside(&aside, ZONE_BYTES);
}

/* Threads, each with limits of its own and one in common. */
static void *set_limits(void *data)
{
    Overrides *own = static_cast<Overrides *>(data);
    uint64_t first = (uint64_t)(uintptr_t)&first;

    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t key = (first + i % 30) * SPREAD;
        uint32_t found;

        assert_true(own->set(key, 5));
        assert_int_equal(own->find(key), 5);
        own->set(key, kLimitUnset);
        assert_int_equal(own->find(key), kLimitUnset);

        assert_true(own->set(42, 1 + i % 2));
        found = own->find(42);
        assert_in_range(found, 1, 2);
    }

    return NULL;
}

static void keeps_limits_of_many(void **state)
{
    ZoneMemory aside = make_aside(ZONE_BYTES);

    (void)state;
    in_threads(set_limits, aside.overrides);
    assert_int_equal(aside.overrides->count(), 1);
    free_aside(&aside, ZONE_BYTES);
}

/* Who dies leaves `held` no less than there are. */
static void survives_the_dead(void **state)
{
    ZoneMemory aside = make_aside(ZONE_BYTES);

    (void)state;

    for (int round = 0; round < 50; round++) {
        pid_t pid = fork();
        uint64_t held = 0;

        if (pid == 0) {
            for (uint64_t i = 0;; i++) {
                uint64_t hash = i % 60 * SPREAD;

                aside.overrides->set(hash, 1 + i % 3);
                aside.offenders->add(hash, {(const char *)&hash, 8}, 1, NOW_MS);
                if (i % 3) {
                    aside.overrides->set(hash, kLimitUnset);
                }
            }
        }

        usleep(500);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);

        for (uint64_t key = 0; key < 60; key++) {
            held += aside.overrides->find(key * SPREAD) != kLimitUnset;
        }

        assert_true(aside.overrides->count() >= held);
        assert_true(aside.overrides->set(12345, 6));
        assert_int_equal(aside.overrides->find(12345), 6);
    }

    free_aside(&aside, ZONE_BYTES);
}

/* ---- the keys rejected most ---- */

static Offender offenders[kOffendersMax];

static void reject(ZoneMemory *aside, const char *key, uint32_t times,
                   uint64_t now_ms)
{
    uint64_t hash = strlen(key) * 31;

    for (const char *p = key; *p != '\0'; p++) {
        hash = (hash + (unsigned char)*p) * SPREAD;
    }

    for (uint32_t i = 0; i < times; i++) {
        aside->offenders->add(hash, {(const char *)key, strlen(key)}, 1,
                              now_ms);
    }
}

/* "a=3 b=1" */
static const char *top_of(ZoneMemory *aside, uint64_t now_ms, size_t most)
{
    static char text[kOffendersMax * 100];
    size_t n = aside->offenders->read(now_ms, offenders);
    size_t length = 0;

    text[0] = '\0';

    for (size_t i = 0; i < n && i < most; i++) {
        length += (size_t)sprintf(
            text + length, "%s%.*s=%llu", i ? " " : "",
            (int)(offenders[i].bytes < 64 ? offenders[i].bytes : 64),
            (const char *)offenders[i].key,
            (unsigned long long)offenders[i].rejected);
    }

    return text;
}

static void counts_few_exactly(void **state)
{
    ZoneMemory aside = make_aside(ZONE_BYTES);
    ZoneMemory small = make_aside(16384);
    char name[20];

    (void)state;

    assert_string_equal(top_of(&aside, NOW_MS, 100), "");

    reject(&aside, "b", 5, NOW_MS);
    reject(&aside, "a", 9, NOW_MS);
    reject(&aside, "", 1, NOW_MS);
    reject(&aside, "b", 2, NOW_MS + 1);
    assert_string_equal(top_of(&aside, NOW_MS, 100), "a=9 b=7 =1");

    for (unsigned i = 0; i < 97; i++) {
        sprintf(name, "key-%u", i);
        reject(&aside, name, 1 + i, NOW_MS);
        reject(&small, name, 1 + i, NOW_MS);
    }

    assert_int_equal(aside.offenders->read(NOW_MS, offenders), 100);
    assert_string_equal(top_of(&aside, NOW_MS, 2), "key-96=97 key-95=96");

    /* the next one takes the place of one with a single rejection */
    reject(&aside, "new", 1, NOW_MS);
    assert_int_equal(aside.offenders->read(NOW_MS, offenders), 100);
    assert_int_equal(small.offenders->read(NOW_MS, offenders), 4);

    aside.offenders->clear();
    assert_string_equal(top_of(&aside, NOW_MS, 100), "");

    free_aside(&aside, ZONE_BYTES);
    free_aside(&small, 16384);
}

static void keeps_the_first_bytes(void **state)
{
    ZoneMemory aside = make_aside(ZONE_BYTES);
    char key[300];

    (void)state;

    memset(key, 'x', sizeof(key));
    aside.offenders->add(3, {(const char *)key, 64}, 1, NOW_MS);
    aside.offenders->add(2, {(const char *)key, 300}, 2, NOW_MS);
    aside.offenders->add(0, {(const char *)"\0\xff", 2}, 3, NOW_MS);

    assert_int_equal(aside.offenders->read(NOW_MS, offenders), 3);
    assert_int_equal(offenders[0].bytes, 2);
    assert_memory_equal(offenders[0].key, "\0\xff", 2);
    assert_int_equal(offenders[1].bytes, 300);
    assert_memory_equal(offenders[1].key, key, 64);
    assert_int_equal(offenders[2].bytes, 64);

    aside.offenders->forget(2);
    assert_int_equal(aside.offenders->read(NOW_MS, offenders), 2);
    free_aside(&aside, ZONE_BYTES);
}

/* A text whose author died: not shown, until it is written anew. */
static void shows_no_text_in_part(void **state)
{
    ZoneMemory aside = make_aside(ZONE_BYTES);
    char *text;

    (void)state;

    reject(&aside, "other", 3, NOW_MS);
    reject(&aside, "some-key", 1, NOW_MS);

    text = static_cast<char *>(memmem(aside.offenders, 20000, "some-key", 8));
    assert_non_null(text);
    text[3] = 'x';

    assert_string_equal(top_of(&aside, NOW_MS, 9), "other=3");
    reject(&aside, "some-key", 1, NOW_MS);
    assert_string_equal(top_of(&aside, NOW_MS, 9), "other=3 some-key=2");
    free_aside(&aside, ZONE_BYTES);
}

static void forgets_with_time(void **state)
{
    ZoneMemory aside = make_aside(ZONE_BYTES);
    uint64_t start_ms = NOW_MS - NOW_MS % SPAN_MS;

    (void)state;

    reject(&aside, "a", 3, start_ms);
    reject(&aside, "b", 2, start_ms + SPAN_MS);
    assert_string_equal(top_of(&aside, start_ms + SPAN_MS, 9), "a=3 b=2");

    /* by another worker's clock, which is behind */
    assert_string_equal(top_of(&aside, start_ms + SPAN_MS - 1, 9), "a=3 b=2");

    reject(&aside, "a", 1, start_ms + SPAN_MS);
    assert_string_equal(top_of(&aside, start_ms + 2 * SPAN_MS - 1, 9),
                        "a=4 b=2");
    assert_string_equal(top_of(&aside, start_ms + 2 * SPAN_MS, 9), "b=2 a=1");
    reject(&aside, "c", 1, start_ms + 2 * SPAN_MS);
    assert_string_equal(top_of(&aside, start_ms + 3 * SPAN_MS, 9), "c=1");
    assert_string_equal(top_of(&aside, start_ms + 4 * SPAN_MS, 9), "");
    free_aside(&aside, ZONE_BYTES);
}

/* Whoever has more than 1/100 of all rejections is there. */
static void finds_who_is_rejected_most(void **state)
{
    ZoneMemory aside = make_aside(ZONE_BYTES);
    uint64_t random = 1;
    uint64_t counts[10] = {0};
    unsigned all = 200000;
    size_t n;

    (void)state;

    for (unsigned i = 0; i < all; i++) {
        uint64_t key = random_below(&random, 8) == 0
                           ? random_below(&random, 10)
                           : 100 + random_below(&random, 1000000);

        if (key < 10) {
            counts[key]++;
        }

        aside.offenders->add(key * SPREAD, {(const char *)&key, sizeof(key)}, 1,
                             NOW_MS);
    }

    n = aside.offenders->read(NOW_MS, offenders);
    assert_int_equal(n, kOffendersMax);

    for (size_t i = 0; i < 10; i++) {
        uint64_t key;

        memcpy(&key, offenders[i].key, sizeof(key));
        assert_true(key < 10);
        assert_in_range(offenders[i].rejected, counts[key],
                        counts[key] + offenders[n - 1].rejected);
        assert_true(offenders[n - 1].rejected <= all / 100);
    }

    free_aside(&aside, ZONE_BYTES);
}

/* Texts say whose they are; none is a mixture. */
static void *reject_many(void *data)
{
    ZoneMemory *aside = static_cast<ZoneMemory *>(data);
    uint64_t random = (uint64_t)(uintptr_t)&random;
    Offender seen[kOffendersMax];

    for (int i = 0; i < 50000; i++) {
        uint64_t words[8];

        words[0] = random_below(&random, 50);

        for (size_t j = 1; j < 8; j++) {
            words[j] = words[0];
        }

        aside->offenders->add((words[0] + 1) * SPREAD,
                              {(const char *)words, sizeof(words)}, 1, NOW_MS);

        if (i % 500 == 0) {
            size_t n = aside->offenders->read(NOW_MS, seen);

            for (size_t j = 0; j < n; j++) {
                memcpy(words, seen[j].key, sizeof(words));
                for (size_t k = 1; k < 8; k++) {
                    assert_true(words[k] == words[0]);
                }
            }
        }
    }

    return NULL;
}

static void loses_none_of_many(void **state)
{
    ZoneMemory aside = make_aside(ZONE_BYTES);
    ZoneMemory small = make_aside(28672);
    uint64_t sum = 0;
    size_t n;

    (void)state;

    /* there is room for all: exact */
    in_threads(reject_many, &aside);
    n = aside.offenders->read(NOW_MS, offenders);
    for (size_t i = 0; i < n; i++) {
        sum += offenders[i].rejected;
    }
    assert_int_equal(n, 50);
    assert_int_equal(sum, THREADS * 50000);

    /* and where they drive each other out */
    in_threads(reject_many, &small);
    assert_in_range(small.offenders->read(NOW_MS, offenders), 1, 7);

    free_aside(&aside, ZONE_BYTES);
    free_aside(&small, 28672);
}

static void samples_what_are_many(void **state)
{
    Sampler sampler = {0};
    uint64_t sum = 0;
    unsigned added = 0;

    (void)state;

    for (uint64_t ms = 1; ms <= 10; ms++) {
        for (unsigned i = 0; i < kRejectionsCounted; i++) {
            assert_int_equal(sampler.weight(ms), 1);
        }
    }

    for (unsigned i = 0; i < 1000000; i++) {
        uint32_t weight = sampler.weight(10);

        sum += weight;
        added += weight != 0;
    }

    assert_in_range(sum, 999000, 1001000);
    assert_int_equal(added, sum / kRejectionsSampled);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_a_small_part),
        cmocka_unit_test(has_room_for_limits_of_keys),
        cmocka_unit_test(stays_within_it),
        cmocka_unit_test(sums_counters),
        cmocka_unit_test(counts_slots_where_it_is_told),
        cmocka_unit_test(estimates_keys),
        cmocka_unit_test(forgets_a_key),
        cmocka_unit_test(keeps_limits),
        cmocka_unit_test(has_room_for_what_it_holds),
        cmocka_unit_test(keeps_limits_of_many),
        cmocka_unit_test(survives_the_dead),
        cmocka_unit_test(counts_few_exactly),
        cmocka_unit_test(keeps_the_first_bytes),
        cmocka_unit_test(shows_no_text_in_part),
        cmocka_unit_test(forgets_with_time),
        cmocka_unit_test(finds_who_is_rejected_most),
        cmocka_unit_test(loses_none_of_many),
        cmocka_unit_test(samples_what_are_many),
    };

    return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
