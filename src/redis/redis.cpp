/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/redis.hpp"

namespace limit_sliding {

void node_answered(Node &node)
{
    Redis &redis = *node.redis;
    node.succeeded();
    if (redis.shared->breaker.succeeded()) {
        /* of the same level as the line that it has failed: a log that shows
         * one shows both */
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "limit_sliding redis \"%V\" answers again",
                      &redis.settings.name);
    }
}

void node_failed(Node &node)
{
    Redis &redis = *node.redis;
    Client &client = redis.client;
    client.failed = ngx_current_msec;
    if (client.nodes.is_cluster() && client.nodes.is_alive_without(node)) {
        /* the rest of it is no worse for that */
        return;
    }

    if (redis.shared->breaker.failed(ngx_current_msec,
                                     static_cast<uint32_t>(ngx_random()))) {
        (void)ngx_atomic_fetch_add(&client.calls->opened, 1);
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "limit_sliding redis \"%V\" has failed repeatedly, "
                      "\"on_error %s\" applies until it answers again",
                      &redis.settings.name,
                      kOnErrorWords[index_of(redis.settings.on_error)].data());
    }
}

} // namespace limit_sliding
