/*
 * Copyright (C) the limit_sliding authors
 */

/* The nodes of a cluster that a worker knows. */

#ifndef LIMIT_SLIDING_REDIS_CLUSTER_NODES_HPP
#define LIMIT_SLIDING_REDIS_CLUSTER_NODES_HPP

#include "redis/logic/remote.hpp"
#include "redis/node.hpp"

namespace limit_sliding {

class Cluster;

/* So many failures in a row, and a node is asked by one request at a time. */
constexpr ngx_uint_t kFailuresMax = kBreakerFailures;

struct ClusterNode : Node {
    bool has_failed() const { return failures >= kFailuresMax; }

    /* Has the client nothing to do with it at present? */
    bool is_unused() const { return ndue == 0 && ncalls == 0; }

    ngx_queue_t link; /* among the nodes */
    Cluster *cluster;
    Endpoint server;
    bool seed;   /* is configured, and so stays */
    bool mapped; /* has slots */
};

struct ClusterNodes : List<ClusterNode, &ClusterNode::link> {
    void start(Cluster *owner, const NodeContext &common, const NodeRole *role);

    /* Returns a new node, or nullptr if there is no memory. */
    ClusterNode *add();

    /* Closes and frees a node that is unused. */
    void free(ClusterNode &node);

    /* Returns the node that another one tells of, perhaps a new one; nullptr:
     * there is no memory, or it cannot be one.  No host, or "?", means the host
     * of the one that tells. */
    ClusterNode *find(const ClusterNode &teller, std::string_view host,
                      int64_t port);

    /* Returns the one that is likeliest to answer. */
    ClusterNode &any();

    Cluster *cluster;
    NodeContext context;
    const NodeRole *node_role;
    size_t size;
};

} // namespace limit_sliding

#endif
