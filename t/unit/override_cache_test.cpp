/* Copyright (C) the limit_sliding authors */

/* Limits of keys as they were last known. */

#include "support.hpp"

#include "core/limiter/zone_memory.hpp"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace limit_sliding;

#define THREADS 4
#define SPREAD 0x9e3779b97f4a7c15ull
#define NONE kLimitUnset
#define OFF kLimitOff

/* Of so many sets, 8 limits each, in memory that processes share. */
static OverrideCache *make_cache(size_t lines) {
    size_t bytes = 64 + 128 * lines;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);

    return OverrideCache::init(memory, bytes);
}

static void free_cache(OverrideCache *cache, size_t lines) { munmap(cache, 64 + 128 * lines); }

/* Each has a window that follows from it. */
static Override own_of(uint64_t limit) {
    if (limit == NONE || limit == OFF || limit == kLimitBlocked) { return {limit, {}}; }

    return {limit, Window::from_code(100 + static_cast<uint32_t>(limit % 1000))};
}

static void set(OverrideCache *cache, uint64_t hash, uint64_t limit) {
    cache->set(hash, own_of(limit));
}

static uint64_t find(const OverrideCache *cache, uint64_t hash) {
    Override own = cache->find(hash);

    if (own.limit < kLimitMax) { assert_true(own == own_of(own.limit)); }

    return own.limit;
}

static void remembers_the_last_one(void **state) {
    OverrideCache *cache = make_cache(64);

    (void)state;

    assert_int_equal(find(cache, 0), NONE);
    assert_int_equal(find(cache, UINT64_MAX), NONE);

    /* a hash of zeroes, and the last line */
    set(cache, 0, 7);
    set(cache, UINT64_MAX, LIMIT_MAX);
    set(cache, SPREAD, OFF);
    assert_int_equal(find(cache, 0), 7);
    assert_int_equal(find(cache, UINT64_MAX), LIMIT_MAX);
    assert_int_equal(find(cache, SPREAD), OFF);
    assert_int_equal(find(cache, 1), NONE);

    set(cache, 0, kLimitMax);
    assert_int_equal(find(cache, 0), kLimitMax);
    set(cache, 0, kRemoteMax);
    assert_int_equal(find(cache, 0), kLimitMax);

    set(cache, 0, kLimitBlocked);
    assert_int_equal(find(cache, 0), kLimitBlocked);
    cache->set(0, {5, Window::of(Calendar::kMonth)});
    assert_true(cache->find(0) == (Override{5, Window::of(Calendar::kMonth)}));

    set(cache, 0, OFF);
    set(cache, SPREAD, 1);
    set(cache, UINT64_MAX, NONE);
    set(cache, 1, NONE);
    assert_int_equal(find(cache, 0), OFF);
    assert_int_equal(find(cache, SPREAD), 1);
    assert_int_equal(find(cache, UINT64_MAX), NONE);
    assert_int_equal(find(cache, 1), NONE);

    free_cache(cache, 64);
}

/* What was taken away makes room, however often. */
static void uses_places_again(void **state) {
    OverrideCache *cache = make_cache(1);

    (void)state;

    for (uint64_t key = 0; key < 7; key++) {
        set(cache, key, 3);
        set(cache, key, 3);
    }

    for (uint64_t key = 7; key < 1000; key++) {
        set(cache, key, 4);
        assert_int_equal(find(cache, key), 4);
        set(cache, key, NONE);
        assert_int_equal(find(cache, key), NONE);
    }

    for (uint64_t key = 0; key < 7; key++) {
        assert_int_equal(find(cache, key), 3);
    }

    free_cache(cache, 1);
}

/* Keys that came once give way before those that came again. */
static void forgets_what_came_once(void **state) {
    OverrideCache *cache = make_cache(1);

    (void)state;

    for (uint64_t key = 0; key < 4; key++) {
        set(cache, key, 3);
        set(cache, key, 3);
    }

    for (uint64_t key = 100; key < 10000; key++) {
        set(cache, key, 5);
        assert_int_equal(find(cache, key), 5);
    }

    for (uint64_t key = 0; key < 4; key++) {
        assert_int_equal(find(cache, key), 3);
    }

    free_cache(cache, 1);
}

/* Where all came again, those that came again long ago. */
static void forgets_what_was_used_long_ago(void **state) {
    OverrideCache *cache = make_cache(1);

    (void)state;

    for (uint64_t key = 0; key < 100; key++) {
        set(cache, key, 3);
        set(cache, key, 3);
        set(cache, 1000, 9);
        assert_int_equal(find(cache, key), 3);
        assert_int_equal(find(cache, 1000), 9);
    }

    assert_int_equal(find(cache, 0), NONE);
    free_cache(cache, 1);
}

/* Of as many keys as half of it has places for, none is forgotten, or one in a
 * thousand. */
static void holds_as_many_as_it_says(void **state) {
    OverrideCache *cache = make_cache(1024);
    uint64_t random = 1, held = 0;
    uint64_t keys[4096];

    (void)state;

    for (size_t i = 0; i < LENGTH(keys); i++) {
        keys[i] = random_next(&random);
        set(cache, keys[i], (uint64_t)i + 1);
    }

    for (size_t i = 0; i < LENGTH(keys); i++) {
        uint64_t limit = find(cache, keys[i]);

        assert_true(limit == NONE || limit == i + 1);
        held += limit != NONE;
    }

    assert_true(held > LENGTH(keys) * 999 / 1000);
    free_cache(cache, 1024);
}

/* A limit is that of its key, whoever writes meanwhile, and whoever dies. */
static uint64_t limit_of(uint64_t key) { return (uint64_t)(key * 1000 % LIMIT_MAX) + 1; }

static void write_at_random(OverrideCache *cache, uint64_t random, long rounds) {
    for (long i = 0; i < rounds; i++) {
        uint64_t key = random_below(&random, 24);
        uint64_t limit = find(cache, key * SPREAD);

        assert_true(limit == NONE || limit == limit_of(key));
        set(cache, key * SPREAD, i % 5 ? limit_of(key) : NONE);
    }
}

static void *hammer(void *data) {
    write_at_random(static_cast<OverrideCache *>(data), (uint64_t)(uintptr_t)&data, 300000);

    return NULL;
}

static void takes_none_for_anothers(void **state) {
    OverrideCache *cache = make_cache(2);
    pthread_t thread[THREADS];

    (void)state;

    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, hammer, cache), 0);
    }

    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }

    free_cache(cache, 2);
}

static void survives_deaths(void **state) {
    OverrideCache *cache = make_cache(2);

    (void)state;

    for (uint64_t i = 0; i < 200; i++) {
        pid_t pid = fork();

        assert_true(pid >= 0);

        if (pid == 0) {
            write_at_random(cache, i + 1, LONG_MAX);
            _exit(1);
        }

        write_at_random(cache, i, 500);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        write_at_random(cache, i, 500);
    }

    for (uint64_t key = 0; key < 24; key++) {
        set(cache, key * SPREAD, 7);
        assert_int_equal(find(cache, key * SPREAD), 7);
        set(cache, key * SPREAD, NONE);
        assert_int_equal(find(cache, key * SPREAD), NONE);
    }

    free_cache(cache, 2);
}

#define ROUNDS 20000

/* Two threads that store the first limits of a cache at once, one of them with a window. */
struct first_t {
    OverrideCache *caches[ROUNDS];
    unsigned arrived[ROUNDS];
};

static void store_first(first_t *first, const Override &own) {
    for (unsigned i = 0; i < ROUNDS; i++) {
        __atomic_add_fetch(&first->arrived[i], 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&first->arrived[i], __ATOMIC_SEQ_CST) < 2) {}

        first->caches[i]->set(own.limit, own);
    }
}

static void *store_with_window(void *first) {
    store_first(static_cast<first_t *>(first), own_of(10));
    return NULL;
}

static void knows_what_it_has(void **state) {
    static first_t first;
    static uint8_t memory[ROUNDS][192] __attribute__((aligned(64)));
    pthread_t thread;

    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        first.caches[i] = OverrideCache::init(memory[i], sizeof(memory[i]));
    }

    OverrideCache *cache = first.caches[0];
    assert_false(cache->has_overrides() || cache->has_windows());
    cache->set(1, {NONE, {}});
    assert_false(cache->has_overrides() || cache->has_windows());

    assert_int_equal(pthread_create(&thread, NULL, store_with_window, &first), 0);
    store_first(&first, {20, {}});
    pthread_join(thread, NULL);

    for (unsigned i = 0; i < ROUNDS; i++) {
        if (!first.caches[i]->has_overrides() || !first.caches[i]->has_windows()) {
            fail_msg("cache %u: limits %d, windows %d", i, first.caches[i]->has_overrides(),
                     first.caches[i]->has_windows());
        }
    }

    cache = make_cache(1);
    cache->set(1, {20, {}});
    assert_true(cache->has_overrides() && !cache->has_windows());
    free_cache(cache, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(remembers_the_last_one),
        cmocka_unit_test(uses_places_again),
        cmocka_unit_test(forgets_what_came_once),
        cmocka_unit_test(forgets_what_was_used_long_ago),
        cmocka_unit_test(holds_as_many_as_it_says),
        cmocka_unit_test(takes_none_for_anothers),
        cmocka_unit_test(survives_deaths),
        cmocka_unit_test(knows_what_it_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
