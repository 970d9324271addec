/* Copyright (C) the limit_sliding authors */

/* What directives share, and the checks that follow once more of the configuration is read. */

#pragma once

#include "http/conf/configuration.hpp"
#include "http/values/parameter.hpp"

namespace limit_sliding {

/* Set parameters of limit_sliding_zone, after its algorithm.  All but set_redis() need redis=. */
bool set_redis(const Param &param, ZoneConf &zone);
bool set_lease(const Param &param, ZoneConf &zone);
bool set_on_error(const Param &param, ZoneConf &zone);
bool set_sync(const Param &param, ZoneConf &zone);

/* Prepares all blocks and their zones.  Logs an error and returns false if one is invalid. */
bool init_redises(ngx_conf_t *cf, const Array<Redis *> &redises, const Zones &zones);

/* Warns of zones that no limit uses, and of keys that a client chooses.  Called once all locations
 * are parsed. */
void warn_of_zones(ngx_conf_t *cf, const MainConf &main);

/* Warns of the limits that the location being merged has set itself, and of its API.  `inherited`
 * has the limits of the level above, or is nullptr. */
void warn_of_place(ngx_conf_t *cf, const LocConf &place, const LimitSet *inherited);

/* Begins a worker process, unless that was done for this cycle: NGINX runs the hooks of modules in
 * their order, so init_worker_by_lua may be first.  Returns the zones of the cycle, or nullptr
 * after an error, which is logged. */
const Zones *begin_process(ngx_cycle_t *cycle);

} // namespace limit_sliding
