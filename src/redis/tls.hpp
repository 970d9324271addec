/*
 * Copyright (C) the limit_sliding authors
 */

/* TLS of connections to Redis. */

#ifndef LIMIT_SLIDING_REDIS_TLS_HPP
#define LIMIT_SLIDING_REDIS_TLS_HPP

#include "redis/settings.hpp"

namespace limit_sliding {

struct Node;

char *redis_ssl(ngx_conf_t *cf, Settings *settings);
void node_handshake(Node *node);

} // namespace limit_sliding

#endif
