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

    /* Returns true if the last attempt to connect has failed; never for a cluster, in which
     * Cluster::retry() connects again. */
    bool is_unreachable() const {
        return node != nullptr && node->is_closed() && node->attempt_failed;
    }

    /* Returns the node of an errand; nullptr: it is for a master, and no map of slots was received.
     * If the node of the slot is unknown, or the master of that id is gone, this is any node, which
     * redirects an ask. */
    Node *route(const Errand &errand) {
        if (!is_cluster()) { return node; }

        if (errand.slot != kMasterSlot) { return &cluster->route(errand.slot); }

        if (!cluster->is_loaded()) { return nullptr; }

        Node *master = cluster->master_from(errand.master);
        return master != nullptr ? master : &cluster->route(0);
    }

    /* Returns true if a request should wait for this slot's node. */
    bool is_worth(ngx_int_t slot) { return !is_cluster() || cluster->is_worth(slot); }

    /* Must be called after calls were sent. */
    void sent() {
        if (watch != nullptr) { watch_master(*watch); }
    }

    ErrorLog log;
    Node *node;          /* nullptr in a cluster */
    SentinelNode *watch; /* watches the master; nullptr: no sentinels */
    Cluster *cluster;    /* nullptr: not a cluster */
};

} // namespace limit_sliding
