/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/start.hpp"

#include "redis/batch.hpp"
#include "redis/outage.hpp"
#include "redis/waiters.hpp"

namespace limit_sliding {

namespace {

constexpr ClientEvents kEvents = {flush_due, fail_due, node_failed};

} // namespace

ngx_int_t make_client(Redis &redis)
{
    Client &client = redis.client;

    ngx_rbtree_init(&client.asks, &client.sentinel, ngx_rbtree_insert_value);
    client.waiting.init();

    /* not to be cancelled: an exiting worker still answers its requests */
    client.deadline.handler = deadline_handler;
    client.deadline.data = &redis;
    client.deadline.log = ngx_cycle->log;

    client.calls = &redis.shared->calls[ngx_process_slot % kCallCounters];

    return client.nodes.start(&redis, &redis.settings, &kEvents);
}

} // namespace limit_sliding
