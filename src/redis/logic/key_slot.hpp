/* Copyright (C) the limit_sliding authors */

#pragma once

#include <string_view>

namespace limit_sliding {

constexpr auto kClusterSlots = 16384;

/* Returns the slot of a key in a Redis Cluster: that of what is between the
 * first braces of the name, or of all of it. */
unsigned key_slot(std::string_view key);

} // namespace limit_sliding
