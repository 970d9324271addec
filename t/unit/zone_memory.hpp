/* Copyright (C) the limit_sliding authors */

/* What a zone's memory holds beside its table, for the tests of that. */

#pragma once

#include "support.hpp"

#include "core/limiter/zone_memory.hpp"

#include <pthread.h>
#include <sys/mman.h>

#define THREADS 4
#define NOW_MS (PRESENT * MINUTE_MS + 1)
#define SPREAD 0x9e3779b97f4a7c15ull
#define OWN_LIMITS_MAX 8
#define OWN_LIMITS_BYTES ZoneMemory::separate_bytes(OWN_LIMITS_MAX)
#define ZONE_BYTES MEGABYTE_ZONE_BYTES

/* Memory of a zone that processes share, and for overrides. */
static inline ZoneMemory make_memory_of(size_t bytes, unsigned mask) {
    ZoneMemory memory;
    bytes += OWN_LIMITS_BYTES;
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(shared != MAP_FAILED);
    memory.init(shared, bytes, mask, OWN_LIMITS_MAX, test_secret);

    return memory;
}

static inline ZoneMemory make_memory(size_t bytes) { return make_memory_of(bytes, 0); }

static inline void free_memory(ZoneMemory *memory, size_t bytes) {
    munmap(memory->counters, bytes + OWN_LIMITS_BYTES);
}

/* Adds rejections of a key, as the module does. */
static inline void add_offender(const ZoneMemory &memory, uint64_t hash, std::string_view key,
                                uint32_t weight, uint64_t now_ms) {
    size_t place = memory.offenders->count(hash, weight, now_ms);

    if (place != Offenders::kNamed) { memory.offenders->set_text(place, hash, key); }
}

/* Runs work(data) in all threads at once. */
static inline void in_threads(void *(*work)(void *), void *data) {
    pthread_t thread[THREADS];

    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, work, data), 0);
    }

    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
}
