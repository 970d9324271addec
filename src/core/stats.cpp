/*
 * Copyright (C) the limit_sliding authors
 */

#include "core/stats.hpp"

#include <algorithm>
#include <cstddef>

#include "core/atomics.hpp"
#include "core/offenders.hpp"

namespace limit_sliding {

namespace {

constexpr size_t kWords = sizeof(Counters) / sizeof(uint64_t);

static_assert(sizeof(Counters) == 128,
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

    *taken += (bytes + kZoneAlign - 1) / kZoneAlign * kZoneAlign;

    return part;
}

constexpr size_t kCacheLeast = kLimitCacheBytes;

LimitCache *make_cache(void *memory, size_t bytes, size_t *taken)
{
    return limit_sliding::limit_cache_init(carve<char>(memory, bytes, taken),
                                           bytes);
}

} // namespace

void counters_sum(const Counters *counters, size_t n, Counters *sum)
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

void aside_init(void *memory, size_t bytes, unsigned mask, Aside *aside)
{
    size_t ncounters = share_of(bytes, 8192, 1, 32);
    size_t places = share_of(bytes, 4096, 8, 256);
    size_t keys = share_of(bytes, 4096, 1, kTopKeys);

    aside->bytes = 0;
    aside->ncounters = ncounters;
    aside->counters
        = carve<Counters>(memory, ncounters * sizeof(Counters), &aside->bytes);

    aside->own = carve<Overrides>(
        memory, offsetof(Overrides, words) + places * sizeof(uint64_t),
        &aside->bytes);
    aside->own->places = places;

    aside->top
        = carve<Offenders>(memory, Offenders::bytes_of(keys), &aside->bytes);
    aside->top->places = keys;

    aside->told = nullptr;

    if ((mask & kAsideRedis) != 0) {
        aside->told = make_cache(
            memory, share_of(bytes, 32, kCacheLeast, bytes), &aside->bytes);
    }

    /* a reload may bring variables to a zone that has had none */
    aside->last = make_cache(memory,
                             (mask & kAsideVariables) != 0
                                 ? share_of(bytes, 32, kCacheLeast, bytes)
                                 : share_of(bytes, 2048, kCacheLeast, 512),
                             &aside->bytes);
}

} // namespace limit_sliding
