/* Copyright (C) the limit_sliding authors */

/* The nodes of a Redis, and the choice of one for a slot. */

#pragma once

#include "redis/topology/cluster.hpp"
#include "redis/topology/sentinel.hpp"

namespace limit_sliding {

/* The nodes that a worker knows of one Redis, whatever its topology is. */
struct Nodes {
    /* Returns false if there is no memory.  The arguments last as long as the
     * worker. */
    bool start(Redis *redis, const Settings *settings, KnownAddresses *known_addresses,
               const ClientEvents *events);

    bool is_started() const { return node != nullptr || is_cluster(); }
    bool is_cluster() const { return cluster != nullptr; }

    /* Closes all connections: the worker exits. */
    void close();

    /* Returns true if Redis is known not to answer; never for a cluster. */
    bool is_away() const { return node != nullptr && !node->is_usable(); }

    /* Returns true if the last attempt to connect has failed; never for a cluster, which
     * tries its nodes itself: Cluster::retry(). */
    bool is_unreachable() const {
        return node != nullptr && node->is_closed() && node->attempt_failed;
    }

    /* Returns the node to ask about this slot, never nullptr.  While it is not
     * known, this is any node, which will tell. */
    Node *route(ngx_int_t slot) { return is_cluster() ? &cluster->route(slot) : node; }

    /* Returns true if it is known which nodes there are. */
    bool are_known() const { return !is_cluster() || cluster->is_loaded(); }

    /* Returns true if a request should wait for this slot's node. */
    bool is_worth(ngx_int_t slot) { return !is_cluster() || cluster->is_worth(slot); }

    /* To be called when calls were sent. */
    void sent() {
        if (watch != nullptr) { watch_master(*watch); }
    }

    ErrorLog log;
    Node *node;          /* nullptr in a cluster */
    SentinelNode *watch; /* nullptr: no sentinels */
    Cluster *cluster;    /* nullptr if it is none */
};

} // namespace limit_sliding
