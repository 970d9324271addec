/*
 * Copyright (C) the limit_sliding authors
 */

/* The nodes of a Redis, and which of them is asked of what. */

#ifndef LIMIT_SLIDING_REDIS_TOPOLOGY_HPP
#define LIMIT_SLIDING_REDIS_TOPOLOGY_HPP

#include "redis/cluster.hpp"
#include "redis/sentinel.hpp"

namespace limit_sliding {

/* The nodes that a worker knows of one Redis, whatever its topology is. */
struct Nodes {
    /* NGX_ERROR: there is no memory.  The events and what they are told about
     * last as long as the worker. */
    ngx_int_t start(Redis *redis, const Settings *settings,
                    const ClientEvents *events);

    bool is_started() const { return node != nullptr || is_cluster(); }
    bool is_cluster() const { return cluster != nullptr; }

    /* Closes all connections: the worker exits. */
    void close();

    /* Is it known that Redis does not answer?  False for a cluster. */
    bool is_away() const { return node != nullptr && !node->is_usable(); }

    /* Returns whom to ask of this slot, never nullptr.  While that is not known
     * it is any node, which will tell. */
    Node *route(ngx_int_t slot)
    {
        return is_cluster() ? &cluster->route(slot) : node;
    }

    /* Should a request wait for this slot's node? */
    bool is_worth(ngx_int_t slot)
    {
        return !is_cluster() || cluster->is_worth(slot);
    }

    /* To be called when calls were sent. */
    void sent()
    {
        if (watch != nullptr) {
            watch_master(*watch);
        }
    }

    ErrorLog log;
    Node *node;          /* nullptr in a cluster */
    SentinelNode *watch; /* nullptr: no sentinels */
    Cluster *cluster;    /* nullptr if it is none */
};

/* Puts ASKING into the buffer, which holds for the next command only. */
ngx_int_t send_asking(Node &node);

} // namespace limit_sliding

#endif
