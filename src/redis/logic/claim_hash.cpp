/*
 * Copyright (C) the limit_sliding authors
 */

#include "core/mix.hpp"
#include "redis/logic/remote.hpp"

namespace limit_sliding {

uint64_t claim_hash(const Claim *claims, size_t n)
{
    uint64_t hash = n;

    for (size_t i = 0; i < n; i++) {
        const Claim &claim = claims[i];
        uint64_t numbers = uint64_t{claim.limit} << 32 | claim.cost;

        hash = mixed(hash ^ claim.hash) + static_cast<uint64_t>(claim.look);
        hash = mixed(hash ^ numbers);
    }

    return hash;
}

uint64_t refusal_hash(const Claim *claim)
{
    uint64_t lower = UINT32_MAX;

    return (mixed(claim->hash) & ~lower)
           | (limit_sliding::claim_hash(claim, 1) & lower);
}

} // namespace limit_sliding
