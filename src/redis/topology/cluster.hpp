/* Copyright (C) the limit_sliding authors */

/* "topology cluster": the nodes that a worker knows, and which of them has
 * which slots.  They are asked at first, and when the map is seen to have
 * changed, but not once for every request that sees it. */

#pragma once

#include "redis/protocol/key_slot.hpp"
#include "redis/wire/node.hpp"

namespace limit_sliding {

class Cluster;

struct ClusterNode : Node, SlotRangeSink {
    /* Returns true if it is asked by one request at a time. */
    bool has_failed() const;

    /* Returns true if the client has nothing to do with it at present. */
    bool is_unused() const { return !is_wanted() && ncalls == 0; }

    ngx_queue_t link; /* among the nodes */
    Cluster *cluster;
    bool seed;   /* is configured, and so stays */
    bool mapped; /* has slots */
};

class Cluster {
public:
    /* Returns a new one, or nullptr if there is no memory. */
    static Cluster *create(const NodeContext &context);

    /* Class Nodes describes these. */
    void close();
    ClusterNode &route(ngx_int_t slot);
    bool is_worth(ngx_int_t slot);

    /* Returns true once a node has sent a map of the slots. */
    bool is_loaded() const { return loaded_; }

    /* Returns the master with the least id from this one on; nullptr: none. */
    ClusterNode *master_from(uint64_t id);

    /* Connects to nodes that requests do not wait for any more, or whose last attempt to
     * connect failed: without requests, nobody would learn that they are dead, or back.
     * Returns in how many milliseconds another one is to be tried. */
    ngx_msec_t retry();

    /* Returns true if another node answers. */
    bool is_alive_without(const Node &failed);

    /* Reads an error of a node about this slot, and returns where to send the
     * ask to, and whether ASKING comes first; nullptr: the error is no
     * redirection, or leads nowhere. */
    Node *redirect(Node &from, ngx_int_t slot, const Reply &reply, bool *asking);

    /* Lets the slots be asked for anew, best of the node that has seen a
     * change, if that is not nullptr. */
    void set_stale(ClusterNode *hint);

    /* Asks the new connection of a node for the slots if they are not known, so
     * that the first requests wait for the answer, and no other node is
     * likelier to tell.  Returns false if there is
     * no memory, and so the node has failed. */
    bool ask_new(ClusterNode &node);

private:
    bool start(const NodeContext &context);
    ClusterNode *add_node();
    void free_node(ClusterNode &node);
    ClusterNode *find(const ClusterNode &teller, std::string_view host, int64_t port);
    ClusterNode *find_target(const ClusterNode &teller, std::string_view target);
    ClusterNode &any();
    bool is_asking() const;
    static Call *create_slots_call(ClusterNode &node);
    void refresh_soon() { post_event(refresh_); }
    void refresh();
    void note_asked(ClusterNode &node);
    static void add_range(SlotRangeSink &teller, const SlotRange &range);
    void changed(ClusterNode &teller);
    static void answered(Node &node, Call &call, Reply *reply);

    ClusterNode *slots_[kClusterSlots]; /* nullptr: its node is not known */
    List<ClusterNode, &ClusterNode::link> nodes_;
    size_t nnodes_;
    NodeContext context_;
    ngx_event_t refresh_; /* posted */
    ClusterNode *hint_;   /* whom to ask best */
    ClusterNode *asked_;  /* last, if it has not answered; or nullptr */
    ngx_msec_t asked_at_;
    size_t ranges_; /* in the reply so far */
    bool loaded_;   /* the slots have been told once */
    bool stale_;    /* they have changed since then, or were not told */
};

} // namespace limit_sliding
