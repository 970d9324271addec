/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>
#include <string_view>

#include "core/claim.hpp"
#include "core/key.hpp"
#include "core/siphash.hpp"

namespace limit_sliding {

constexpr auto kSecretBytes = 16;
constexpr auto kZoneAlign = 128; /* bytes */

struct ZoneStats {
    uint64_t slots; /* states the zone can hold */
    uint64_t used;
    uint64_t evicted;
    uint64_t refused;
};

/* All keys' states in shared memory.  This is the head of that memory; lines of
 * slots follow.  What every request reads shares no cache line with what an
 * eviction writes. */
struct Zone {
    uint64_t secret[2];
    Pairs pairs;
    uint64_t slot_bytes;
    uint64_t offset_ms; /* of the zone's time from the caller's */
    Window window;      /* of keys that have none of their own */
    alignas(64) SlotCounts counts;

    /* Makes a zone of `memory`: `bytes` long, zeroed, aligned to kZoneAlign.
     * The zone is all of it and needs no destruction.  Returns null if `bytes`
     * is too small for a header and one group of slots.  Not safe against
     * concurrent use of the same memory. */
    static Zone *init(void *memory, size_t bytes, const Policy &policy, uint64_t offset_ms,
                      const uint8_t secret[kSecretBytes]);

    /* Returns the policy of keys that have no window of their own, by that of any
     * key. */
    Policy shared_policy(const Policy &policy) const {
        Policy shared = policy;

        shared.window_ms = window.ms;
        shared.calendar = window.calendar;
        shared.salt = 0;

        return shared;
    }

    /* Returns the keyed hash of a key, for claims and what is known of keys. */
    uint64_t hash(std::string_view key) const {
        return SipHash13(secret[0], secret[1]).hash(key.data(), key.size());
    }

    /* Reads the counts of claims that named none of their own.  Each is exact,
     * but the figures are not a single snapshot. */
    ZoneStats stats() const;

    /*
     * Counts slots that hold an unexpired key by a walk over `bytes` of slots
     * at most: exact if the zone has no more.  Else returns the share of those
     * in use, `used` in the whole zone, that is live in its first so many
     * slots, which are as good as any as keys are hashed.  A walk over a
     * gigabyte takes a good part of a second.
     */
    uint64_t keys(const Policy &policy, uint64_t now_ms, uint64_t limit, uint64_t used,
                  uint64_t bytes) const;

    char *slots() { return reinterpret_cast<char *>(this + 1); }
};

static_assert(sizeof(Zone) == kZoneAlign, "a pair of lines starts at a multiple of 128 bytes");
static_assert(kSecretBytes == 16, "two words of secret");

} // namespace limit_sliding
