/* Copyright (C) the limit_sliding authors */

#pragma once

#include "core/policy/calendar.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Returns the offsets of the server's time zone, of the last years and the years to
 * come, in memory of the pool; nullptr: no memory.  Workers inherit them from the
 * master, so that all have the same windows. */
const UtcOffsets *find_local_offsets(ngx_pool_t *pool);

} // namespace limit_sliding
