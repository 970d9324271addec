/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_REDIS_BLOCK_HPP
#define LIMIT_SLIDING_REDIS_BLOCK_HPP

#include "redis/settings.hpp"

namespace limit_sliding {

/* Reads a limit_sliding_redis block into settings that are zeroed but for
 * their name; omitted parameters keep their defaults.  Returns NGX_CONF_OK, or
 * the error once it is logged. */
char *redis_block(ngx_conf_t *cf, Settings *settings);

} // namespace limit_sliding

#endif
