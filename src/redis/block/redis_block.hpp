/* Copyright (C) the limit_sliding authors */

/* The configuration of a Redis. */

#pragma once

#include "ngx/ngx.hpp"
#include "redis/errands/redis_instance.hpp"

namespace limit_sliding {

/* Reads a limit_sliding_redis block into settings that are zeroed but for their name; omitted
 * parameters keep their defaults.  Returns NGX_CONF_OK, or the error once it is logged. */
char *redis_block(ngx_conf_t *cf, Settings *settings);

/* Makes a Redis ready after its block and zones are parsed: its servers' addresses, its script and
 * its shared memory.  The resolver may be nullptr.  Returns false if there is no memory. */
bool redis_init(ngx_conf_t *cf, Redis *redis, ngx_resolver_t *resolver);

} // namespace limit_sliding
