/* Copyright (C) the limit_sliding authors */

/* The shared memory of a zone, which a reload keeps if it can. */

#pragma once

#include "http/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Orders memory of zone.size bytes from NGINX, and so defines the zone. */
bool order_memory(ngx_conf_t *cf, ZoneConf &zone);

/* Decides whether the zone is to have the memory that the last cycle has, and
 * sets `restarted` if not.  Returns false if there is no memory for that. */
bool reuse_memory(ngx_conf_t *cf, ZoneConf &zone);

/* Empties and logs what has to be once the new configuration is in use. */
void enter_memory(ngx_log_t *log, const ZoneConf &zone);

/* Gives this worker counters of its own in the memory. */
void take_counters(ZoneConf &zone);

} // namespace limit_sliding
