/*
 * Copyright (C) the limit_sliding authors
 */

/* Requests whose keys lie in several slots of a cluster. */

#ifndef LIMIT_SLIDING_REDIS_CROSS_SLOT_HPP
#define LIMIT_SLIDING_REDIS_CROSS_SLOT_HPP

#include "redis/ask.hpp"

namespace limit_sliding {

ngx_int_t ask_across_slots(Redis *redis, Ask *ask, Claim *claims,
                           Waiter *waiter);
void split_leave(Waiter *waiter);

} // namespace limit_sliding

#endif
