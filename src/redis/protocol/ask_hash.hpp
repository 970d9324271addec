/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/hashes.hpp"
#include "core/policy/claim.hpp"

namespace limit_sliding {

/* Added to the number of a purpose, also for the script, if rejected units are recorded. */
constexpr uint64_t kRecords = 16;

/* Returns a hash of the keys, limits, costs and purposes of n >= 1 claims in this order, equal in
 * all workers and after reloads. */
inline uint64_t ask_hash(const Claim *claims, size_t n) {
    uint64_t hash = n;

    for (size_t i = 0; i < n; i++) {
        const Claim &claim = claims[i];
        auto purpose = static_cast<uint64_t>(claim.purpose) + (claim.records ? kRecords : 0);

        hash = mixed(hash ^ claim.hash);
        hash = mixed(hash ^ claim.limit);
        hash = mixed(hash ^ (purpose << 56 | claim.cost));
    }

    return hash;
}

} // namespace limit_sliding
