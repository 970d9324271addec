/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

namespace limit_sliding {

/*
 * The rank of a state tells how much it constrains its key to a request that
 * needs a slot for another key, and does not know the limit of this one.  By
 * what is used alone, keys with large limits, hardly used, would push out
 * others that are close to small ones.  So a state has a bit that says whether
 * half of the limit was used when it was made.  States with that bit rank above
 * all that have it not, and both by what is used.
 */
constexpr uint64_t kNearLimit = 1ULL << 56;

constexpr bool is_near_limit(uint64_t used, uint64_t limit) { return used >= limit - used; }

constexpr uint64_t rank_of(uint64_t used, bool is_near) {
    return used == 0 ? 0 : used + (is_near ? kNearLimit : 0);
}

} // namespace limit_sliding
