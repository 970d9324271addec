/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

namespace limit_sliding {

/* The rank of a state tells how much its key would lose by an eviction.  A request that needs the
 * slot does not know the key's limit.  Used units alone would favour large limits that are hardly
 * used over small limits that are almost reached.  So a bit in the state tells whether half of the
 * limit was used when the state was made.  States with this bit rank above all others; units
 * decide between equals. */
constexpr uint64_t kNearLimit = 1ULL << 56;

constexpr bool is_near_limit(uint64_t used, uint64_t limit) { return used >= limit - used; }

constexpr uint64_t eviction_rank(uint64_t used, bool is_near) {
    return used == 0 ? 0 : used + (is_near ? kNearLimit : 0);
}

} // namespace limit_sliding
