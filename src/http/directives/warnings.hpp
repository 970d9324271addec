/* Copyright (C) the limit_sliding authors */

/* Warnings of "nginx -t" about configurations that are valid and seldom meant. */

#pragma once

#include "http/conf/configuration.hpp"

namespace limit_sliding {

/* Warns of zones that no place uses, once all places are known. */
void warn_of_zones(ngx_conf_t *cf, const MainConf &main);

/* Warns of the limits that the location being merged has of its own, and of its
 * API.  `inherited` are those of the level above, or none. */
void warn_of_place(ngx_conf_t *cf, const LocConf &place, const LimitSet *inherited);

} // namespace limit_sliding
