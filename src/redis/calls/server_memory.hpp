/* Copyright (C) the limit_sliding authors */

/*
 * The memory of the servers of a Redis.
 *
 * It is asked for when somebody looks at the API, and by one worker of the node in
 * kMemoryAskMs at most; whoever looks next sees the answer.  So nothing is asked where
 * nobody looks, and nobody waits for it.
 */

#pragma once

#include <optional>

#include "redis/calls/redis_state.hpp"

namespace limit_sliding {

constexpr ngx_msec_t kMemoryAskMs = 60'000;

/* Returns the sums of all masters, as they were told in the last three minutes, or
 * nothing; and asks for the next ones, if that is due. */
std::optional<ServerMemory> look_at_memory(Redis &redis);

} // namespace limit_sliding
