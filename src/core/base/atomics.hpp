/* Copyright (C) the limit_sliding authors */

/* Words in shared memory.  Workers share them without locks; a worker may die at any time. */

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#ifdef LIMIT_SLIDING_ATOMICS
#include LIMIT_SLIDING_ATOMICS
#else
namespace limit_sliding {

/* A word in shared memory. t/weak replaces this type by a model of the memory order of C++. */
template <class T>
using Atomic = std::atomic<T>;

} // namespace limit_sliding
#endif

namespace limit_sliding {

/* The bound of loops over shared memory.  A loop repeats only if another process has just changed
 * the word.  No process loses so many races, but damaged memory must not hang a worker. */
constexpr unsigned kAttempts = 10000;

/* Returns a word of shared memory as an atomic one. */
inline Atomic<uint64_t> &shared(uint64_t *word) {
    static_assert(Atomic<uint64_t>::is_always_lock_free
                      && sizeof(Atomic<uint64_t>) == sizeof(uint64_t),
                  "a word is as good as an atomic one");
    return *reinterpret_cast<Atomic<uint64_t> *>(word);
}

/* Adds to a counter in shared memory; atomic, but unordered relative to other words. */
inline void add(uint64_t *word, uint64_t n) {
    shared(word).fetch_add(n, std::memory_order_relaxed);
}

/* Reads a word that needs no order relative to other words. */
inline uint64_t load(const uint64_t *word) {
    return shared(const_cast<uint64_t *>(word)).load(std::memory_order_relaxed);
}

/* Writes a word that needs no order relative to other words. */
inline void store(uint64_t *word, uint64_t value) {
    shared(word).store(value, std::memory_order_relaxed);
}

/* Returns the field-wise sum of n objects in shared memory that consist of 64-bit counters. */
template <class Counters>
Counters sum_of(const Counters *parts, size_t n) {
    static_assert(sizeof(Counters) % sizeof(uint64_t) == 0, "whole words");

    Counters sum = {};
    auto *total = reinterpret_cast<uint64_t *>(&sum);

    for (size_t i = 0; i < n; i++) {
        const auto *words = reinterpret_cast<const uint64_t *>(&parts[i]);

        for (size_t j = 0; j < sizeof(Counters) / sizeof(uint64_t); j++) {
            total[j] += load(&words[j]);
        }
    }

    return sum;
}

} // namespace limit_sliding
