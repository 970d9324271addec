/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_REDIS_LOGIC_KEY_SLOT_HPP
#define LIMIT_SLIDING_REDIS_LOGIC_KEY_SLOT_HPP

#include <string_view>

namespace limit_sliding {

constexpr auto kClusterSlots = 16384;

/*
 * Returns the slot of a key in a Redis Cluster: that of what is between the
 * first braces of the name, or of all of it.
 */
unsigned key_slot(std::string_view key);

} // namespace limit_sliding

#endif
