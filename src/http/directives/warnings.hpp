/* Copyright (C) the limit_sliding authors */

/* Warnings of "nginx -t" about configurations that are valid but rarely intended. */

#pragma once

#include "http/conf/configuration.hpp"

namespace limit_sliding {

/* Warns of zones that no limit uses, and of keys that a client chooses.  Called once all locations
 * are parsed. */
void warn_of_zones(ngx_conf_t *cf, const MainConf &main);

/* Warns of the limits that the location being merged has set itself, and of its API.  `inherited`
 * has the limits of the level above, or is nullptr. */
void warn_of_place(ngx_conf_t *cf, const LocConf &place, const LimitSet *inherited);

} // namespace limit_sliding
