/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/cluster_nodes.hpp"

namespace limit_sliding {

namespace {

/* A redirection to one more is not believed. */
constexpr size_t kNodesMax = 1024;

/* The highest for a node that answers, then one that soon will, then one that
 * may; 0 for one that has not for long. */
ngx_uint_t rank(const ClusterNode &node)
{
    if (node.is_ready() && node.failures == 0) {
        return NGX_MAX_INT32_VALUE;
    }

    if (!node.is_usable()) {
        return 0;
    }

    return 2 * (kFailuresMax - ngx_min(node.failures, kFailuresMax))
           + !node.is_closed() + 1;
}

} // namespace

void ClusterNodes::start(Cluster *owner, const NodeContext &common,
                         const NodeRole *role)
{
    init();

    cluster = owner;
    context = common;
    node_role = role;

    for (const Server &server : span<Server>(context.settings->servers)) {
        if (ClusterNode *node = add()) {
            node->server.set(server);
            node->seed = true;
        }
    }
}

ClusterNode *ClusterNodes::add()
{
    auto *node = create_on_heap<ClusterNode>();
    if (node != nullptr) {
        node->init(context, node_role, &node->server);
        node->cluster = cluster;
        push_back(*node);
        size++;
    }

    return node;
}

void ClusterNodes::free(ClusterNode &node)
{
    node.close();

    if (node.flush.posted) {
        ngx_delete_posted_event(&node.flush);
    }

    remove(node);
    size--;

    destroy_on_heap(&node);
}

ClusterNode *ClusterNodes::find(const ClusterNode &teller,
                                std::string_view host, int64_t port)
{
    if (host.empty() || host[0] == '?') {
        host = teller.server.bare_host();
    }

    for (ClusterNode &node : *this) {
        if (node.server.port == port && node.server.bare_host() == host) {
            return &node;
        }
    }

    ClusterNode *node = size < kNodesMax ? add() : nullptr;
    if (node != nullptr && !node->server.set(host, port)) {
        free(*node);
        return nullptr;
    }

    return node;
}

ClusterNode &ClusterNodes::any()
{
    /* there is always one: the seeds stay */

    ClusterNode *best = &front();

    for (ClusterNode &node : *this) {
        if (rank(node) > rank(*best)) {
            best = &node;
        }
    }

    return *best;
}

} // namespace limit_sliding
