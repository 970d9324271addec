/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/hashes.hpp"
#include "core/policy/claim.hpp"

namespace limit_sliding {

/* The time in ms for which a refusal is kept.  Then Redis is asked again, because the limit of
 * the key may have changed there. */
constexpr auto kRefusalMs = 1000;

/* The same if rejected requests are recorded: requests at other nodes prolong the wait. */
constexpr auto kRecordedRefusalMs = 100;

/* The last reply about a claim that was rejected, or admitted while another claim was rejected. */
struct Refusal {
    uint64_t until_ms;       /* time before which nothing is admitted; 0: the claim is admitted */
    uint64_t known_until_ms; /* time until which the refusal is kept, at most until until_ms */
    uint64_t limit;
    uint64_t remaining;
    uint64_t reset_ms; /* time at which `remaining` grows; like all times, below 2^42 ms */

    bool admits() const { return until_ms == 0; }
};

/* Returns a hash of the keys, limits, costs and purposes of n >= 1 claims in this order, equal in
 * all workers and after reloads. */
inline uint64_t ask_hash(const Claim *claims, size_t n) {
    constexpr uint64_t kRecords = 16; /* of a claim whose rejections are recorded */

    uint64_t hash = n;
    for (size_t i = 0; i < n; i++) {
        const Claim &claim = claims[i];
        const auto purpose = static_cast<uint64_t>(claim.purpose) + (claim.records ? kRecords : 0);
        hash = mixed(hash ^ claim.hash);
        hash = mixed(hash ^ claim.limit);
        hash = mixed(hash ^ (purpose << 56 | claim.cost));
    }
    return hash;
}

/* Returns the hash of a claim in this cache; its upper half depends on the key alone. */
inline uint64_t refusal_hash(const Claim &claim) {
    constexpr uint64_t kLower = UINT32_MAX;
    return (mixed(claim.hash) & ~kLower) | (ask_hash(&claim, 1) & kLower);
}

/* A cache of exhausted keys.  A full cache evicts refusals.  A refusal is never taken for one of
 * another key, unless their 64-bit hashes are equal. */
class alignas(64) Refusals {
public:
    /* Makes a cache in `memory`: `bytes` long, zeroed, aligned to 64.  Returns null if there is
     * no room for the refusals of a key. */
    static Refusals *init(void *memory, size_t bytes);

    /* Adds a refusal; `hash` is refusal_hash() of the claim. */
    void add(uint64_t hash, uint64_t now_ms, const Refusal &refusal);

    /* Returns true if a refusal holds, and sets *refusal. */
    bool find(uint64_t hash, uint64_t now_ms, Refusal *refusal) const;

    /* Deletes all refusals of the claim's key, and perhaps some of other keys. */
    void forget(const Claim &claim);

private:
    struct Entry;
    struct Line;
    struct Group;

    Group &group_of(uint64_t hash) const;
    Line &line_of(uint64_t hash) const;

    uint64_t groups_;
};

} // namespace limit_sliding
