/*
 * Copyright (C) the limit_sliding authors
 */

/* Whether a reload keeps the memory of a zone. */

#ifndef LIMIT_SLIDING_HTTP_ZONE_REUSE_HPP
#define LIMIT_SLIDING_HTTP_ZONE_REUSE_HPP

#include "http/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* The tag of a zone's memory that no zone of the last cycle decides on. */
void *first_zone_tag();

/*
 * Says in the tag of the zone's memory whether it is to be the one that the
 * last cycle has, and in `restarted` why not.  NGX_ERROR: no memory.
 */
ngx_int_t reuse_zone(ngx_conf_t *cf, ZoneConf *zone);

/* Logs that the zone, which the new configuration uses now, starts empty. */
void log_restarted(ngx_log_t *log, ZoneConf *zone);

} // namespace limit_sliding

#endif
