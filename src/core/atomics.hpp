/* Copyright (C) the limit_sliding authors */

#pragma once

#include <atomic>
#include <cstdint>

#ifdef LIMIT_SLIDING_ATOMICS
#include LIMIT_SLIDING_ATOMICS
#else
namespace limit_sliding {

/* A word of shared memory.  t/weak puts one of its own here, which plays what the
 * memory model of C++ allows. */
template <class T>
using Atomic = std::atomic<T>;

} // namespace limit_sliding
#endif

namespace limit_sliding {

/* A loop over shared memory begins another round only because another process
 * has changed what was read.  Nobody loses so many races in a row; should the
 * memory be damaged, the loop ends nevertheless. */
constexpr unsigned kAttempts = 10000;

/* Returns a word of shared memory as an atomic one. */
inline Atomic<uint64_t> &shared(uint64_t *word) {
    static_assert(Atomic<uint64_t>::is_always_lock_free
                      && sizeof(Atomic<uint64_t>) == sizeof(uint64_t),
                  "a word is as good as an atomic one");

    return *reinterpret_cast<Atomic<uint64_t> *>(word);
}

/* Adds to a counter in shared memory: exact whoever else adds, in no order to
 * anything else. */
inline void add(uint64_t *word, uint64_t n) {
    shared(word).fetch_add(n, std::memory_order_relaxed);
}

/* Returns a word that is read for itself: it tells nothing of other words, or they are
 * checked against it. */
inline uint64_t load(const uint64_t *word) {
    return shared(const_cast<uint64_t *>(word)).load(std::memory_order_relaxed);
}

} // namespace limit_sliding
