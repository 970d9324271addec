/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_REDIS_BLOCK_FIELDS_HPP
#define LIMIT_SLIDING_REDIS_BLOCK_FIELDS_HPP

#include "redis/settings.hpp"

namespace limit_sliding {

/* Reads the parameters of a limit_sliding_redis block up to the closing brace;
 * omitted parameters keep their defaults.  Returns NGX_CONF_OK, or the error
 * once it is logged. */
char *parse_block(ngx_conf_t *cf, Settings &settings);

} // namespace limit_sliding

#endif
