/* Copyright (C) the limit_sliding authors */

#pragma once

#include "core/policy/calendar.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Finds the UTC offsets of the server's time zone from 2 years ago to 20 years ahead, in memory
 * of the pool.  Returns nullptr if there is no memory.  Workers inherit the offsets from the
 * master, so that all workers have the same windows. */
const UtcOffsets *find_local_offsets(ngx_pool_t *pool);

} // namespace limit_sliding
