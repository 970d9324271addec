/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_REDIS_START_HPP
#define LIMIT_SLIDING_REDIS_START_HPP

#include "redis/redis.hpp"

namespace limit_sliding {

/* Makes this worker's part of a Redis; connections are made later.  NGX_ERROR:
 * there is no memory. */
ngx_int_t make_client(Redis &redis);

/* The same if it is not there yet. */
inline ngx_int_t start_client(Redis &redis)
{
    return redis.client.nodes.is_started() ? NGX_OK : make_client(redis);
}

} // namespace limit_sliding

#endif
