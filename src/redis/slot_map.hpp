/*
 * Copyright (C) the limit_sliding authors
 */

/* Which node of a cluster has which slots: asked at first, and when that is seen
 * to have changed, but not once for every request that sees it. */

#ifndef LIMIT_SLIDING_REDIS_SLOT_MAP_HPP
#define LIMIT_SLIDING_REDIS_SLOT_MAP_HPP

#include "redis/cluster_nodes.hpp"

namespace limit_sliding {

class SlotMap {
public:
    void start(ClusterNodes *nodes);

    /* The node of each slot; nullptr while that is not known. */
    ClusterNode *slots[kClusterSlots];

    /* Has it changed since it was told, or not been told? */
    bool is_stale() const { return stale_; }

    /* Has it been told once? */
    bool is_loaded() const { return loaded_; }

    /* Lets it be asked anew, best of the node that has seen a change, if that is
     * not nullptr. */
    void set_stale(ClusterNode *hint);

    /* Asks if it is stale, and not too early; requests that follow will have that
     * tried again. */
    void refresh_soon() { ngx_post_event(&refresh_, &ngx_posted_events); }

    /* Asks the new connection of a node, so that the first requests wait for the
     * answer.  Returns false if there is no memory, and so the node has failed. */
    bool greet(ClusterNode &node);

private:
    struct MapCall;

    MapCall *create();
    void refresh();
    void note_asked(ClusterNode &node);
    void add(const SlotRange &range);
    void changed(ClusterNode &teller);
    static void answered(Node &node, Call &call, Reply *reply);

    ClusterNodes *nodes_;
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
