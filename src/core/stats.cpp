/*
 * Copyright (C) the limit_sliding authors
 */

#include "core/stats.h"

#include <algorithm>
#include <cstddef>

#include "core/atomics.hpp"
#include "core/offenders.hpp"

using limit_sliding::load;

namespace {

constexpr size_t kWords = sizeof(limit_sliding_counters_t) / sizeof(uint64_t);

static_assert(sizeof(limit_sliding_counters_t) == 128,
              "two cache lines, which processors fetch together");

/* As many as a zone of that size can spare, and no more than are of use. */
size_t share_of(size_t bytes, size_t part, size_t least, size_t most)
{
    return std::min(std::max(bytes / part, least), most);
}

/* Takes so many bytes, rounded up to whole lines. */
template <class T>
T *carve(void *memory, size_t bytes, size_t *taken)
{
    auto *part = reinterpret_cast<T *>(static_cast<char *>(memory) + *taken);

    *taken += (bytes + LIMIT_SLIDING_ZONE_ALIGN - 1) / LIMIT_SLIDING_ZONE_ALIGN
              * LIMIT_SLIDING_ZONE_ALIGN;

    return part;
}

constexpr size_t kCacheLeast = LIMIT_SLIDING_LIMIT_CACHE_BYTES;

limit_sliding_limit_cache_t *make_cache(void *memory, size_t bytes,
                                        size_t *taken)
{
    return limit_sliding_limit_cache_init(carve<char>(memory, bytes, taken),
                                          bytes);
}

} // namespace

void limit_sliding_counters_sum(const limit_sliding_counters_t *counters,
                                size_t n, limit_sliding_counters_t *sum)
{
    auto *total = reinterpret_cast<uint64_t *>(sum);

    *sum = {};

    for (size_t i = 0; i < n; i++) {
        auto *words = reinterpret_cast<const uint64_t *>(&counters[i]);

        for (size_t j = 0; j < kWords; j++) {
            total[j] += load(&words[j]);
        }
    }
}

void limit_sliding_aside_init(void *memory, size_t bytes, unsigned mask,
                              limit_sliding_aside_t *aside)
{
    size_t ncounters = share_of(bytes, 8192, 1, 32);
    size_t places = share_of(bytes, 4096, 8, 256);
    size_t keys = share_of(bytes, 4096, 1, LIMIT_SLIDING_TOP_KEYS);

    aside->bytes = 0;
    aside->ncounters = ncounters;
    aside->counters = carve<limit_sliding_counters_t>(
        memory, ncounters * sizeof(limit_sliding_counters_t), &aside->bytes);

    aside->own = carve<limit_sliding_own_t>(memory,
                                            offsetof(limit_sliding_own_t, words)
                                                + places * sizeof(uint64_t),
                                            &aside->bytes);
    aside->own->places = places;

    aside->top = carve<limit_sliding_top_t>(
        memory, limit_sliding_top_s::bytes_of(keys), &aside->bytes);
    aside->top->places = keys;

    aside->told = nullptr;

    if ((mask & LIMIT_SLIDING_ASIDE_REDIS) != 0) {
        aside->told = make_cache(
            memory, share_of(bytes, 32, kCacheLeast, bytes), &aside->bytes);
    }

    /* a reload may bring variables to a zone that has had none */
    aside->last = make_cache(memory,
                             (mask & LIMIT_SLIDING_ASIDE_VARIABLES) != 0
                                 ? share_of(bytes, 32, kCacheLeast, bytes)
                                 : share_of(bytes, 2048, kCacheLeast, 512),
                             &aside->bytes);
}
