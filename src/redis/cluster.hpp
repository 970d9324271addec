/*
 * Copyright (C) the limit_sliding authors
 */

/* "topology cluster": which node is asked of what. */

#ifndef LIMIT_SLIDING_REDIS_CLUSTER_HPP
#define LIMIT_SLIDING_REDIS_CLUSTER_HPP

#include "redis/slot_map.hpp"

namespace limit_sliding {

/* The meaning of a node's error for an ask. */
enum class Redirect {
    kNone,  /* it is no redirection */
    kMoved, /* the slot is another node's now */
    kAsk,   /* this ask is for another node, after ASKING */
    kAgain  /* the same node is to be asked again */
};

/* Class Nodes describes the functions. */
class Cluster {
public:
    /* Returns a new one, or nullptr if there is no memory. */
    static Cluster *create(const NodeContext &context);

    void close();
    ClusterNode &route(ngx_int_t slot);
    bool is_worth(ngx_int_t slot);
    ngx_msec_t retry();
    bool is_alive_without(const Node &failed);
    Node *redirect(Node &from, ngx_int_t slot, const Reply &reply,
                   Redirect *kind);

private:
    SlotMap map_;
};

} // namespace limit_sliding

#endif
