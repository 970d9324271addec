/* Copyright (C) the limit_sliding authors */

/*
 * The memory of the servers of a Redis.
 *
 * A request of the API makes one worker of the node ask for the memory, once in kMemoryAskMs at
 * most, and does not wait for the replies: the next request shows them.
 */

#pragma once

#include <optional>

#include "redis/errands/redis_instance.hpp"

namespace limit_sliding {

constexpr ngx_msec_t kMemoryAskMs = 60'000;

/* Returns the sums of all masters from replies of the last three minutes, or nothing; and asks for
 * the next sums if they are due. */
std::optional<ServerMemory> look_at_memory(Redis &redis);

} // namespace limit_sliding
