/*
 * Copyright (C) the limit_sliding authors
 */

/* Calls of the script. */

#ifndef LIMIT_SLIDING_REDIS_SCRIPT_CALL_HPP
#define LIMIT_SLIDING_REDIS_SCRIPT_CALL_HPP

#include "redis/batch.hpp"

namespace limit_sliding {

ngx_int_t redis_script(ngx_conf_t *cf, Redis *redis);
ngx_uint_t call_fits(AskCall *call, Ask *ask);
ngx_int_t call_script(Node *node, AskCall *call);

} // namespace limit_sliding

#endif
