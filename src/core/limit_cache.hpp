/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/policy.hpp"

namespace limit_sliding {

/*
 * Limits of keys as they were last known, in 8 bytes each.  When it is full it
 * forgets limits that were stored only once first.
 *
 * A cache line is the set of places where a key may be.  Every place is one
 * word, so a process may die at any moment:
 *
 *     fingerprint of the key 33 | used 1 | limit 30
 *
 * The line is chosen by other bits of the key's hash than the fingerprint has.
 * 0: never used, and so are all places after it.  A limit that was taken away
 * leaves a word without fingerprint and limit.
 *
 * `used` says that the limit was stored once more since it came into the cache.
 * A new one takes the place of one that is not used; if all are, they are
 * unused from then on, as in a cache with the policy NRU, "not recently used".
 */
class alignas(64) LimitCache {
public:
    static constexpr size_t kBytesMin = 128;

    /* Makes a cache of `memory`: `bytes` long, at least kBytesMin, zeroed,
     * aligned to 64. */
    static LimitCache *init(void *memory, size_t bytes);

    /* Returns the limit that was stored last for the key of this hash, or
     * kUnlimited, or kLimitUnset if none is known. */
    uint64_t find(uint64_t hash) const;

    /* Stores it, a limit above kLimitMax as that, as it is for shared memory; or
     * forgets what is known with kLimitUnset.  It writes nothing
     * if that is stored already.  For a key without a limit, in a cache that
     * has few, this reads two words. */
    void set(uint64_t hash, uint64_t limit);

private:
    uint64_t *line_of(uint64_t hash) const;

    uint64_t lines_;
};

} // namespace limit_sliding
