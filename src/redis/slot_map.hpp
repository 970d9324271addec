/*
 * Copyright (C) the limit_sliding authors
 */

/* The nodes of a cluster that a worker knows, and which of them has which
 * slots.  They are asked at first, and when the map is seen to have changed,
 * but not once for every request that sees it. */

#ifndef LIMIT_SLIDING_REDIS_SLOT_MAP_HPP
#define LIMIT_SLIDING_REDIS_SLOT_MAP_HPP

#include "redis/logic/breaker.hpp"
#include "redis/logic/key_slot.hpp"
#include "redis/logic/remote.hpp"
#include "redis/node.hpp"

namespace limit_sliding {

class SlotMap;

/* So many failures in a row, and a node is asked by one request at a time. */
constexpr ngx_uint_t kFailuresMax = kBreakerFailures;

struct ClusterNode : Node {
    bool has_failed() const { return failures >= kFailuresMax; }

    /* Has the client nothing to do with it at present? */
    bool is_unused() const { return ndue == 0 && ncalls == 0; }

    ngx_queue_t link; /* among the nodes */
    SlotMap *map;
    bool seed;   /* is configured, and so stays */
    bool mapped; /* has slots */
};

class SlotMap : SlotRangeSink {
public:
    /* Adds the servers of the configuration to a zeroed map.  Returns false if
     * there is no memory for any. */
    bool start(const NodeContext &context, const NodeRole *role);

    /* Returns the node that another one tells of, perhaps a new one; nullptr:
     * there is no memory, or it cannot be one.  No host, or "?", means the host
     * of the one that tells. */
    ClusterNode *find(const ClusterNode &teller, std::string_view host,
                      int64_t port);

    /* Returns the node that is likeliest to answer. */
    ClusterNode &any();

    /* Has the map changed since it was told, or not been told? */
    bool is_stale() const { return stale_; }

    /* Has it been told once? */
    bool is_loaded() const { return loaded_; }

    /* Lets it be asked anew, best of the node that has seen a change, if that
     * is not nullptr. */
    void set_stale(ClusterNode *hint);

    /* Asks if it is stale, and not too early; requests that follow will have
     * that tried again. */
    void refresh_soon() { ngx_post_event(&refresh_, &ngx_posted_events); }

    /* Asks the new connection of a node, so that the first requests wait for
     * the answer.  Returns false if there is no memory, and so the node has
     * failed. */
    bool greet(ClusterNode &node);

    ClusterNode *slots[kClusterSlots]; /* nullptr: its node is not known */
    List<ClusterNode, &ClusterNode::link> nodes;

private:
    ClusterNode *add_node();
    void free_node(ClusterNode &node);
    Call *create_map_call();
    void refresh();
    void note_asked(ClusterNode &node);
    void add_range(const SlotRange &range);
    void changed(ClusterNode &teller);
    static void answered(Node &node, Call &call, Reply *reply);

    NodeContext context_;
    const NodeRole *role_;
    size_t nnodes_;
    ngx_event_t refresh_; /* posted */
    ClusterNode *hint_;   /* whom to ask best */
    ClusterNode *asked_;  /* at present; or nullptr */
    ngx_msec_t asked_at_;
    size_t ranges_; /* in the reply so far */
    bool loaded_;
    bool stale_;
};

} // namespace limit_sliding

#endif
