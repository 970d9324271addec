/* Copyright (C) the limit_sliding authors */

#include "redis/topology/topology.hpp"

namespace limit_sliding {

namespace {

const NodeRole standalone
    = {[](Node &node) { return node.greet_server(); }, nullptr, nullptr, nullptr};

} // namespace

bool Nodes::start(Redis *redis, const Settings *settings, KnownAddresses *known_addresses,
                  const ClientEvents *events) {
    NodeContext context = {redis, settings, &log, known_addresses, events};
    log.name = settings->name;
    if (settings->topology == Topology::kSentinel) {
        SentinelNode *used = create_sentinel_node(context, nullptr);
        if (used != nullptr) {
            context.events = nullptr;
            watch = create_sentinel_node(context, used);
        }

        node = used;
        return watch != nullptr;
    }

    if (settings->topology == Topology::kCluster) {
        cluster = Cluster::create(context);
    } else if ((node = create_on_heap<Node>()) != nullptr) {
        node->init(context, &standalone);
        node->server.set(settings->servers[0]);
    }
    return node != nullptr || is_cluster();
}

void Nodes::close() {
    if (node != nullptr) { node->close(); }

    if (watch != nullptr) { watch->close(); }

    if (cluster != nullptr) { cluster->close(); }
}

} // namespace limit_sliding
