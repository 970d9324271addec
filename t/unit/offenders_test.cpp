/* Copyright (C) the limit_sliding authors */

/* The keys that were rejected most. */

#include "zone_memory.hpp"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SPAN_MS kOffenderSpanMs

static Offender offenders[kOffendersMax];

static void reject(ZoneMemory *memory, const char *key, uint32_t times, uint64_t now_ms) {
    uint64_t hash = strlen(key) * 31;

    for (const char *p = key; *p != '\0'; p++) {
        hash = (hash + (unsigned char)*p) * SPREAD;
    }

    for (uint32_t i = 0; i < times; i++) {
        add_offender(*memory, hash, {(const char *)key, strlen(key)}, 1, now_ms);
    }
}

/* "a=3 b=1" */
static const char *top_of(ZoneMemory *memory, uint64_t now_ms, size_t most) {
    static char text[kOffendersMax * 100];
    size_t n = memory->offenders->read(now_ms, offenders);
    size_t length = 0;

    text[0] = '\0';

    for (size_t i = 0; i < n && i < most; i++) {
        length += (size_t)sprintf(text + length, "%s%.*s=%llu", i ? " " : "",
                                  (int)(offenders[i].bytes < 64 ? offenders[i].bytes : 64),
                                  (const char *)offenders[i].key,
                                  (unsigned long long)offenders[i].rejected);
    }

    return text;
}

static void counts_few_exactly(void **state) {
    ZoneMemory memory = make_memory(ZONE_BYTES);
    ZoneMemory small = make_memory(16384);
    char name[20];

    (void)state;

    assert_string_equal(top_of(&memory, NOW_MS, 100), "");

    reject(&memory, "b", 5, NOW_MS);
    reject(&memory, "a", 9, NOW_MS);
    reject(&memory, "", 1, NOW_MS);
    reject(&memory, "b", 2, NOW_MS + 1);
    assert_string_equal(top_of(&memory, NOW_MS, 100), "a=9 b=7 =1");

    for (unsigned i = 0; i < 97; i++) {
        sprintf(name, "key-%u", i);
        reject(&memory, name, 1 + i, NOW_MS);
        reject(&small, name, 1 + i, NOW_MS);
    }

    assert_int_equal(memory.offenders->read(NOW_MS, offenders), 100);
    assert_string_equal(top_of(&memory, NOW_MS, 2), "key-96=97 key-95=96");

    /* the next one takes the place of one with a single rejection */
    reject(&memory, "new", 1, NOW_MS);
    assert_int_equal(memory.offenders->read(NOW_MS, offenders), 100);
    assert_int_equal(small.offenders->read(NOW_MS, offenders), 4);

    memory.offenders->clear();
    assert_string_equal(top_of(&memory, NOW_MS, 100), "");

    free_memory(&memory, ZONE_BYTES);
    free_memory(&small, 16384);
}

static void keeps_the_first_bytes(void **state) {
    ZoneMemory memory = make_memory(ZONE_BYTES);
    char key[300];

    (void)state;

    memset(key, 'x', sizeof(key));
    add_offender(memory, 3, {(const char *)key, 64}, 1, NOW_MS);
    add_offender(memory, 2, {(const char *)key, 300}, 2, NOW_MS);
    add_offender(memory, 0, {(const char *)"\0\xff", 2}, 3, NOW_MS);

    assert_int_equal(memory.offenders->read(NOW_MS, offenders), 3);
    assert_int_equal(offenders[0].bytes, 2);
    assert_memory_equal(offenders[0].key, "\0\xff", 2);
    assert_int_equal(offenders[1].bytes, 300);
    assert_memory_equal(offenders[1].key, key, 64);
    assert_int_equal(offenders[2].bytes, 64);

    memory.offenders->forget(2);
    assert_int_equal(memory.offenders->read(NOW_MS, offenders), 2);
    free_memory(&memory, ZONE_BYTES);
}

/* A text whose author died: not shown, until it is written anew. */
static void shows_no_text_in_part(void **state) {
    ZoneMemory memory = make_memory(ZONE_BYTES);
    char *text;

    (void)state;

    reject(&memory, "other", 3, NOW_MS);
    reject(&memory, "some-key", 1, NOW_MS);

    text = static_cast<char *>(memmem(memory.offenders, 20000, "some-key", 8));
    assert_non_null(text);
    text[3] = 'x';

    assert_string_equal(top_of(&memory, NOW_MS, 9), "other=3");
    reject(&memory, "some-key", 1, NOW_MS);
    assert_string_equal(top_of(&memory, NOW_MS, 9), "other=3 some-key=2");
    free_memory(&memory, ZONE_BYTES);
}

static void forgets_with_time(void **state) {
    ZoneMemory memory = make_memory(ZONE_BYTES);
    uint64_t start_ms = NOW_MS - NOW_MS % SPAN_MS;

    (void)state;

    reject(&memory, "a", 3, start_ms);
    reject(&memory, "b", 2, start_ms + SPAN_MS);
    assert_string_equal(top_of(&memory, start_ms + SPAN_MS, 9), "a=3 b=2");

    /* by another worker's clock, which is behind */
    assert_string_equal(top_of(&memory, start_ms + SPAN_MS - 1, 9), "a=3 b=2");

    reject(&memory, "a", 1, start_ms + SPAN_MS);
    assert_string_equal(top_of(&memory, start_ms + 2 * SPAN_MS - 1, 9), "a=4 b=2");
    assert_string_equal(top_of(&memory, start_ms + 2 * SPAN_MS, 9), "b=2 a=1");
    reject(&memory, "c", 1, start_ms + 2 * SPAN_MS);
    assert_string_equal(top_of(&memory, start_ms + 3 * SPAN_MS, 9), "c=1");
    assert_string_equal(top_of(&memory, start_ms + 4 * SPAN_MS, 9), "");
    free_memory(&memory, ZONE_BYTES);
}

/* Whoever has more than 1/100 of all rejections is there. */
static void finds_who_is_rejected_most(void **state) {
    ZoneMemory memory = make_memory(ZONE_BYTES);
    uint64_t random = 1;
    uint64_t counts[10] = {0};
    unsigned all = 200000;
    size_t n;

    (void)state;

    for (unsigned i = 0; i < all; i++) {
        uint64_t key = random_below(&random, 8) == 0 ? random_below(&random, 10)
                                                     : 100 + random_below(&random, 1000000);

        if (key < 10) { counts[key]++; }

        add_offender(memory, key * SPREAD, {(const char *)&key, sizeof(key)}, 1, NOW_MS);
    }

    n = memory.offenders->read(NOW_MS, offenders);
    assert_int_equal(n, kOffendersMax);

    for (size_t i = 0; i < 10; i++) {
        uint64_t key;

        memcpy(&key, offenders[i].key, sizeof(key));
        assert_true(key < 10);
        assert_in_range(offenders[i].rejected, counts[key],
                        counts[key] + offenders[n - 1].rejected);
        assert_true(offenders[n - 1].rejected <= all / 100);
    }

    free_memory(&memory, ZONE_BYTES);
}

/* Texts say whose they are; none is a mixture. */
static void *reject_many(void *data) {
    ZoneMemory *memory = static_cast<ZoneMemory *>(data);
    uint64_t random = (uint64_t)(uintptr_t)&random;
    Offender seen[kOffendersMax];

    for (int i = 0; i < 50000; i++) {
        uint64_t words[8];

        words[0] = random_below(&random, 50);

        for (size_t j = 1; j < 8; j++) {
            words[j] = words[0];
        }

        add_offender(*memory, (words[0] + 1) * SPREAD, {(const char *)words, sizeof(words)}, 1,
                     NOW_MS);

        if (i % 500 == 0) {
            size_t n = memory->offenders->read(NOW_MS, seen);

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

static void loses_none_of_many(void **state) {
    ZoneMemory memory = make_memory(ZONE_BYTES);
    ZoneMemory small = make_memory(28672);
    uint64_t sum = 0;
    size_t n;

    (void)state;

    /* there is room for all: exact */
    in_threads(reject_many, &memory);
    n = memory.offenders->read(NOW_MS, offenders);
    for (size_t i = 0; i < n; i++) {
        sum += offenders[i].rejected;
    }
    assert_int_equal(n, 50);
    assert_int_equal(sum, THREADS * 50000);

    /* and where they drive each other out */
    in_threads(reject_many, &small);
    assert_in_range(small.offenders->read(NOW_MS, offenders), 1, 7);

    free_memory(&memory, ZONE_BYTES);
    free_memory(&small, 28672);
}

static void samples_what_are_many(void **state) {
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

/* Rejections of the next ms are counted again, though some are still to be left out. */
static void counts_the_first_of_each_ms(void **state) {
    Sampler sampler = {0};
    Sampler all = {.takes_all = true};

    (void)state;

    for (uint64_t ms = 1; ms <= 3; ms++) {
        for (unsigned i = 0; i < kRejectionsCounted; i++) {
            assert_int_equal(sampler.weight(ms), 1);
        }

        sampler.weight(ms);
        assert_true(sampler.skip > 0);
    }

    for (unsigned i = 0; i < 10 * kRejectionsCounted; i++) {
        assert_int_equal(all.weight(1), 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_few_exactly),         cmocka_unit_test(keeps_the_first_bytes),
        cmocka_unit_test(shows_no_text_in_part),      cmocka_unit_test(forgets_with_time),
        cmocka_unit_test(finds_who_is_rejected_most), cmocka_unit_test(loses_none_of_many),
        cmocka_unit_test(samples_what_are_many),      cmocka_unit_test(counts_the_first_of_each_ms),
    };

    return cmocka_run_group_tests_name("offenders", tests, NULL, NULL);
}
