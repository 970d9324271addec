/*
 * Copyright (C) the limit_sliding authors
 */

/* The parameters of a limit_sliding_redis block. */

#ifndef LIMIT_SLIDING_REDIS_BLOCK_FIELDS_HPP
#define LIMIT_SLIDING_REDIS_BLOCK_FIELDS_HPP

#include "redis/settings.hpp"

namespace limit_sliding {

char *redis_field(ngx_conf_t *cf, ngx_command_t *dummy, void *conf);
char *duplicate(ngx_conf_t *cf, ngx_str_t *value);

} // namespace limit_sliding

#endif
