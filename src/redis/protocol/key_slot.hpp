/* Copyright (C) the limit_sliding authors */

#pragma once

#include <string_view>

namespace limit_sliding {

constexpr auto kClusterSlots = 16384;

/* Returns the slot of a key in a Redis Cluster: the slot of the text between the
 * first braces of the name, or of the whole name. */
unsigned key_slot(std::string_view key);

} // namespace limit_sliding
