/* Copyright (C) the limit_sliding authors */

/* "topology cluster": the nodes that a worker knows, and the map of slots to nodes.  A node is
 * asked for the map at first and when replies show a change, but only once for a change. */

#pragma once

#include "redis/protocol/key_slot.hpp"
#include "redis/wire/node.hpp"

namespace limit_sliding {

class Cluster;

struct ClusterNode : Node, SlotRangeSink {
    /* Returns true if the node failed so often that only one request at a time waits for it. */
    bool has_failed() const;

    /* Returns true if no errand or call is for the node. */
    bool is_unused() const { return ndue == 0 && ncalls == 0; }

    ngx_queue_t link; /* in the list of nodes */
    Cluster *cluster;
    bool seed;   /* is configured, so it is never removed */
    bool mapped; /* the map has slots of this node */
};

class Cluster {
public:
    /* Returns a new cluster, or nullptr if there is no memory. */
    static Cluster *create(const NodeContext &context);

    /* Struct Nodes describes these functions. */
    void close();
    Node *route(const Errand &errand);
    bool is_worth(ngx_int_t slot);

    /* Returns the node of a slot, or any node if it is unknown. */
    ClusterNode &route(ngx_int_t slot);

    /* Returns the master with the least id from `id` on, or nullptr if there is none. */
    ClusterNode *master_from(uint64_t id);

    /* Connects to nodes that have failed, or that could not be connected to: without requests,
     * the worker would not notice that they are back.  Returns the ms until the next attempt. */
    ngx_msec_t retry();

    /* Returns true if a node other than `failed` is ready and has no failures. */
    bool is_alive_without(const Node &failed);

    /* Reads an error that a node has returned for this slot.  Returns the node to send the ask
     * to, and sets *asking if ASKING must precede it; nullptr: the error is no redirection, or
     * its target is invalid. */
    Node *redirect(Node &from, ngx_int_t slot, const Reply &reply, bool *asking);

    /* Requests the map of slots again, preferably from `hint`, the node that has reported a
     * change, if it is not nullptr. */
    void set_stale(ClusterNode *hint);

    /* Adds CLUSTER SLOTS to the greeting of a node if the map is stale and no other node is
     * likelier to reply, so that the first requests wait for the map.  Returns false if there is
     * no memory and the node has failed. */
    bool ask_new(ClusterNode &node);

private:
    ClusterNode *add_node();
    void free_node(ClusterNode &node);
    ClusterNode *find(const ClusterNode &teller, std::string_view host, int64_t port);
    ClusterNode *find_target(const ClusterNode &teller, std::string_view target);
    ClusterNode &any();
    bool is_asking() const;
    static Call *create_slots_call(ClusterNode &node);
    void refresh();
    void note_asked(ClusterNode &node);
    static void add_range(SlotRangeSink &teller, const SlotRange &range);
    void changed(ClusterNode &teller);
    static void answered(Node &node, Call &call, Reply *reply);

    ClusterNode *slots_[kClusterSlots]; /* nodes of the slots; nullptr: unknown */
    List<ClusterNode, &ClusterNode::link> nodes_;
    size_t nnodes_;
    NodeContext context_;
    ngx_event_t refresh_; /* posted if the map is stale */
    ClusterNode *hint_;   /* preferred node to ask, or nullptr */
    ClusterNode *asked_;  /* node asked last, until it replies; or nullptr */
    ngx_msec_t asked_at_; /* ms of the last request for the map */
    size_t ranges_;       /* ranges in the reply so far */
    bool loaded_;         /* a map was received */
    bool stale_;          /* the map is out of date, or none was received */
};

} // namespace limit_sliding
