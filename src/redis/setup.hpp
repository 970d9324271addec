/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_REDIS_SETUP_HPP
#define LIMIT_SLIDING_REDIS_SETUP_HPP

#include "redis/redis.hpp"

namespace limit_sliding {

/* Makes a Redis ready whose block and zones are parsed: its servers' addresses,
 * its script and its shared memory.  The resolver may be nullptr.  Returns
 * NGX_ERROR if there is no memory. */
ngx_int_t redis_init(ngx_conf_t *cf, Redis *redis, ngx_resolver_t *resolver);

} // namespace limit_sliding

#endif
