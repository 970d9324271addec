/*
 * Copyright (C) the limit_sliding authors
 */

/* The shared memory of a zone. */

#ifndef LIMIT_SLIDING_HTTP_ZONE_MEMORY_HPP
#define LIMIT_SLIDING_HTTP_ZONE_MEMORY_HPP

#include "http/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Orders memory of zone.size bytes from NGINX, and so defines the zone. */
ngx_int_t add_zone_memory(ngx_conf_t *cf, ZoneConf *zone);

/* Gives this worker counters of its own in the memory of every zone. */
void take_counters(const Zones &zones);

} // namespace limit_sliding

#endif
