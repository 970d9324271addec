/* Copyright (C) the limit_sliding authors */

/* "topology sentinel": a sentinel is asked for the master before each connection, so that a
 * failover is noticed when a connection breaks.  While there is traffic, sentinels are asked
 * every second as well, because a replaced master may go on for a while.  A sentinel may be
 * stale: another master is used once two sentinels in a row have named it, and never if ROLE says
 * that it is no master. */

#pragma once

#include "redis/wire/node.hpp"

namespace limit_sliding {

/* A node that asks sentinels for its server. */
struct SentinelNode : Node {
    /* The node for calls, if this node only watches its master; else nullptr. */
    SentinelNode *watched;

    Endpoint master;   /* master in use; port 0: none */
    Endpoint named;    /* master in the last reply of a sentinel */
    size_t votes;      /* consecutive replies that have named `named` */
    size_t voter;      /* number of the sentinel that has replied last */
    size_t next;       /* number of the next sentinel to ask, modulo their number */
    size_t tries;      /* sentinels that this attempt to connect has tried */
    bool finding;      /* the server is a sentinel, or will be */
    bool found;        /* the sentinel has named a master */
    bool refuted;      /* ROLE has refuted the last master, so one sentinel is enough for another */
    ngx_msec_t looked; /* time of the last check in ms, if the node watches */
};

/* Returns a new node, or nullptr if there is no memory.  The node closes `watched`, if it is not
 * nullptr, when the master changes. */
SentinelNode *create_sentinel_node(const NodeContext &context, SentinelNode *watched);

/* Checks the master if a check is due.  Must be called after calls were sent. */
void watch_master(SentinelNode &watching);

} // namespace limit_sliding
