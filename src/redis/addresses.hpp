/*
 * Copyright (C) the limit_sliding authors
 */

/* Addresses of servers that are known when NGINX starts. */

#ifndef LIMIT_SLIDING_REDIS_ADDRESSES_HPP
#define LIMIT_SLIDING_REDIS_ADDRESSES_HPP

#include "redis/settings.hpp"

namespace limit_sliding {

/*
 * Without a resolver names are looked up now, as those of upstreams are.  So is
 * "localhost" in any case: name servers need not know it (RFC 6761), and Angie
 * and Tengine have a resolver even where none is configured.  A name that is
 * not found is no reason not to start: its Redis is away, as one that does not
 * answer.  Without a resolver it cannot be looked up again later, since that
 * would block a worker, but it is by each reload.  NGX_ERROR: no memory.
 */
ngx_int_t look_up_servers(ngx_conf_t *cf, Settings &settings);

/*
 * Gives servers that were not found the addresses that they had in the last
 * cycle: a reload while the name server is away loses no Redis.  NGX_ERROR: no
 * memory.
 */
ngx_int_t keep_addresses(ngx_pool_t *pool, Settings &settings,
                         const Settings &last, ngx_log_t *log);

} // namespace limit_sliding

#endif
