/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/atomics.hpp"
#include "core/own_limit.hpp"

namespace limit_sliding {

/*
 * Limits of keys as they were last known, in 16 bytes each.  When it is full it
 * forgets limits that were stored only once first.
 *
 * Two cache lines are the set of places where a key may be.  A place is two words:
 *
 *     value  code of the window 32 | limit 32; 0: none
 *     check  value ^ (63 bits of the key's hash | used 1)
 *
 * The words are stored one after the other, in no order to anything else.  Where two
 * processes store at once, or one dies between, or a reader sees one of them only, the
 * words do not fit each other: then the place has the limit of no key that there is, and is
 * taken by another one some day.
 *
 * Two sets are chosen by halves of the hash.  A key is in the second one only if the
 * first one was full: a place never used is 0, and so are all places after it.
 *
 * `used` says that the limit was stored once more since it came into the cache.
 * A new one takes the place of one that is not used; if all are, they are
 * unused from then on, as in a cache with the policy NRU, "not recently used".
 */
class alignas(64) LimitCache {
public:
    static constexpr size_t kBytesMin = 192;

    /* Makes a cache of `memory`: `bytes` long, at least kBytesMin, zeroed,
     * aligned to 64. */
    static LimitCache *init(void *memory, size_t bytes);

    /* Returns what was stored last for the key of this hash; nothing is set if none
     * is known. */
    OwnLimit find(uint64_t hash) const;

    /* Stores it, a limit above kLimitMax as that, as it is for shared memory; or
     * forgets what is known if nothing is set.  It writes nothing if that is stored
     * already.  For a key without a limit, in a cache that has few, this reads two
     * words. */
    void set(uint64_t hash, const OwnLimit &own);

    /* Returns false if no limit that was ever stored has had a window, or none is seen
     * yet: then it is as if the limit were stored later. */
    bool has_windows() const { return load(&has_windows_) != 0; }

private:
    struct Set;

    /* Returns the key's first or second set, 0 or 1. */
    Set &set_of(uint64_t hash, unsigned choice) const;

    uint64_t sets_;
    uint64_t has_windows_;
};

} // namespace limit_sliding
