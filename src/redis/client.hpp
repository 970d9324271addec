/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * Limits that Redis decides.
 *
 * A request's claims become an "ask": all or nothing, and the same for all
 * requests of this worker that claim the same meanwhile.  Asks that are due in
 * one turn of the event loop leave in one "call", a command of the script.
 * Calls are pipelined over a "node", the connection of this worker to a server.
 */

#ifndef LIMIT_SLIDING_REDIS_CLIENT_HPP
#define LIMIT_SLIDING_REDIS_CLIENT_HPP

#include "redis/ask.hpp"
#include "redis/block_directive.hpp"
#include "redis/lease_units.hpp"

namespace limit_sliding {

extern bool has_redis;

ngx_int_t redis_init(ngx_conf_t *cf, Redis *redis, ngx_resolver_t *resolver);

/* A worker begins, and ends. */
void redis_enter(Redis *redis);
void redis_exit(Redis *redis);

} // namespace limit_sliding

#endif
