/* Copyright (C) the limit_sliding authors */

/* The nodes of a Redis, and the choice of one for a slot. */

#pragma once

#include "redis/topology/cluster.hpp"
#include "redis/topology/sentinel.hpp"

namespace limit_sliding {

/* The nodes of one Redis that a worker knows, in any topology. */
struct Nodes {
    /* Creates the nodes, which the arguments must outlive.  Returns false without memory. */
    bool start(Redis *redis, const Settings *settings, KnownAddresses *known_addresses,
               const ClientEvents *events);

    bool is_cluster() const { return cluster != nullptr; }

    /* Closes all connections because the worker exits. */
    void close();

    /* Returns true if Redis is known not to answer; never for a cluster. */
    bool is_away() const { return node != nullptr && !node->is_usable(); }

    /* Returns the node of an errand; nullptr: it is for a master, and no map of slots was received.
     * If the node of the slot is unknown, or the master of that id is gone, this is any node, which
     * redirects an ask. */
    Node *route(const Errand &errand) { return is_cluster() ? cluster->route(errand) : node; }

    /* Returns true if a request should wait for this slot's node. */
    bool is_worth(ngx_int_t slot) { return !is_cluster() || cluster->is_worth(slot); }

    ErrorLog log;
    Node *node;          /* nullptr in a cluster */
    SentinelNode *watch; /* watches the master; nullptr: no sentinels */
    Cluster *cluster;    /* nullptr: not a cluster */
};

} // namespace limit_sliding
