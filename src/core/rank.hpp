/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_CORE_RANK_HPP
#define LIMIT_SLIDING_CORE_RANK_HPP

#include <cstdint>

namespace limit_sliding {

/*
 * How much a state constrains its key, to whoever needs a place for another one
 * and does not know the limit of this one: what is used alone would let keys
 * with large limits, hardly used, push out others that are close to small ones.
 * So a state has a bit that says whether half of the limit was used when it was
 * made.  All that have it rank above all that do not, and both by what is used.
 */
constexpr uint64_t kNearLimit = 1ULL << 56;

constexpr bool is_near_limit(uint64_t used, uint64_t limit)
{
    return used >= limit - used;
}

constexpr uint64_t rank_of(uint64_t used, bool is_near)
{
    return used == 0 ? 0 : used + (is_near ? kNearLimit : 0);
}

} // namespace limit_sliding

#endif
