/* Copyright (C) the limit_sliding authors */

/* The Redis blocks of a configuration, and zones that name one. */

#pragma once

#include "http/conf/zone.hpp"
#include "http/values/parameter.hpp"
#include "ngx/array.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Set parameters of limit_sliding_zone once the algorithm is set; the others need
 * redis=. */
bool set_redis(const Param &param, ZoneConf &zone);
bool set_lease(const Param &param, ZoneConf &zone);
bool set_on_error(const Param &param, ZoneConf &zone);
bool set_sync(const Param &param, ZoneConf &zone);

/* Prepares the blocks and the zones in them once all are parsed.  Logs what is
 * wrong, and returns false. */
bool init_redises(ngx_conf_t *cf, const Array<Redis *> &redises, const Zones &zones);

} // namespace limit_sliding
