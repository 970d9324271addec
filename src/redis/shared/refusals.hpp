/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/policy/claim.hpp"

namespace limit_sliding {

/* The time for which a refusal holds.  Redis is asked again after it, as the
 * limit of the key may have been changed there. */
constexpr auto kRefusalMs = 1000;

/* The same where rejected requests are recorded: other nodes may have recorded some
 * since, after which the key waits for longer. */
constexpr auto kRecordedRefusalMs = 100;

struct Refusal {
    uint64_t until_ms; /* nothing is admitted before */
    uint64_t limit;
    uint64_t remaining;
    uint64_t reset_ms; /* when more remains, below 2^42 */
    bool admits;       /* the limit would have admitted, beside another one that
                          rejected; until_ms has no meaning then */

    uint64_t lasts_ms = kRefusalMs; /* for so long it is known */
};

/* Returns the hash of the claim in this cache.  Its upper half is the key's. */
uint64_t refusal_hash(const Claim &claim);

/* A cache of keys known to be exhausted.  It forgets some refusals when there
 * are many, and never takes one for another key's, unless their 64-bit hashes
 * are equal. */
class alignas(64) Refusals {
public:
    /* Makes a cache of `memory`: `bytes` long, zeroed, aligned to 64.  Returns
     * null if there is no room for any. */
    static Refusals *init(void *memory, size_t bytes);

    /* `hash` is refusal_hash() of the claim. */
    void add(uint64_t hash, uint64_t now_ms, const Refusal &refusal);

    /* Returns true if a refusal holds, which is then in *refusal. */
    bool find(uint64_t hash, uint64_t now_ms, Refusal *refusal) const;

    /* Forgets all refusals of the claim's key, and perhaps some of others. */
    void forget(const Claim &claim);

private:
    struct Entry;
    struct Line;

    Line &line_of(uint64_t hash) const;

    uint64_t lines_;
};

} // namespace limit_sliding
