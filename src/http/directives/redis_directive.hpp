/* Copyright (C) the limit_sliding authors */

/* The Redis blocks of a configuration, and the parameters of zones in Redis. */

#pragma once

#include "http/conf/zone.hpp"
#include "http/values/parameter.hpp"
#include "ngx/array.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Reads limit_sliding_redis. */
char *redis_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* Set parameters of limit_sliding_zone, after its algorithm.  All but set_redis() need redis=. */
bool set_redis(const Param &param, ZoneConf &zone);
bool set_lease(const Param &param, ZoneConf &zone);
bool set_on_error(const Param &param, ZoneConf &zone);
bool set_sync(const Param &param, ZoneConf &zone);

/* Prepares all blocks and their zones.  Logs an error and returns false if one is invalid. */
bool init_redises(ngx_conf_t *cf, const Array<Redis *> &redises, const Zones &zones);

} // namespace limit_sliding
