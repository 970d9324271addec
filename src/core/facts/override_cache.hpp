/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/atomics.hpp"
#include "core/policy/override.hpp"

namespace limit_sliding {

/*
 * A cache of overrides, 16 bytes each.  A full cache first evicts overrides that were stored only
 * once.
 *
 * The cache keeps overrides that Redis has sent, which must hold while Redis is away, and the
 * limits that a variable gave to the last request of each key, for the API.  Every worker stores
 * them without a lock and for any number of keys, which the table of overrides cannot do.
 *
 * A set of places is two cache lines.  A place is two words:
 *
 *     value  Override::code(); 0: none
 *     check  value ^ (63 bits of the key's hash | used 1)
 *
 * The words are stored one after the other.  If two processes store at once, or a process dies
 * between the stores, or a reader sees only one of them, then the words match no key, and the
 * place is evicted later.
 *
 * Halves of the hash select two sets.  A key is in the second set only if the first one was full.
 * All places behind a place that was never used are unused, too.
 *
 * `used` is set when the override of a cached key is stored again.  A new key replaces a key
 * without this flag.  If all keys of a set have the flag, the flags are cleared, as by the policy
 * NRU ("not recently used").
 */
class alignas(64) OverrideCache {
public:
    static constexpr size_t kBytesMin = 192;

    /* Makes a cache in `bytes` >= kBytesMin of zeroed memory, aligned to 64. */
    static OverrideCache *init(void *memory, size_t bytes);

    /* Returns the override that was stored last for this hash; not set if there is none. */
    Override find(uint64_t hash) const;

    /* Stores an override, capped at kLimitMax; or removes the key if none is set.  Writes nothing
     * if the cache is up to date.  In a nearly empty cache, a key without an override costs two
     * reads. */
    void set(uint64_t hash, const Override &own);

    /* Return false if no override was stored, and if no stored one had a window.  A reader may see
     * the first one a little late. */
    bool has_overrides() const { return load(&has_overrides_) != 0; }
    bool has_windows() const { return load(&has_windows_) != 0; }

private:
    struct Set;

    Set &set_of(uint64_t half) const;

    uint64_t sets_;

    /* Words of their own: several processes may set them at once. */
    uint64_t has_overrides_;
    uint64_t has_windows_;
};

} // namespace limit_sliding
