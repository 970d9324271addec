/*
 * Copyright (C) the limit_sliding authors
 */

#include "remote.h"

namespace {

/* The finalizer of MurmurHash3. */
uint64_t mixed(uint64_t h)
{
    h = (h ^ h >> 33) * 0xff51afd7ed558ccd;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53;

    return h ^ h >> 33;
}

} // namespace

uint64_t limit_sliding_claim_hash(const limit_sliding_claim_t *claims, size_t n)
{
    uint64_t hash = n;

    for (size_t i = 0; i < n; i++) {
        const limit_sliding_claim_t &claim = claims[i];
        uint64_t numbers = uint64_t{claim.limit} << 32 | claim.cost;

        hash = mixed(hash ^ claim.hash) + static_cast<uint64_t>(claim.look);
        hash = mixed(hash ^ numbers);
    }

    return hash;
}
