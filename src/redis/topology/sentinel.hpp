/* Copyright (C) the limit_sliding authors */

/* "topology sentinel": which server is the master is asked for every
 * connection, so that a failover is found out as a broken connection is.  It is
 * asked again every second of traffic, as a master that was replaced may go on
 * for a while.  One sentinel may be stale: another master is believed once two
 * sentinels in a row have named it, and none once ROLE says otherwise. */

#pragma once

#include "redis/wire/node.hpp"

namespace limit_sliding {

/* A node that asks sentinels for its server. */
struct SentinelNode : Node {
    /* This node watches the master of that one; nullptr: it is used
     * itself. */
    SentinelNode *watched;

    Endpoint master;   /* that is believed; its port is 0 if there is none */
    Endpoint named;    /* by the last answer */
    size_t votes;      /* answers in a row that have named it, */
    size_t voter;      /* the last of them by this sentinel */
    size_t next;       /* of the sentinels to ask */
    size_t tries;      /* of sentinels, by this attempt to connect */
    bool finding;      /* is connected to a sentinel, or will be */
    bool found;        /* has an answer of the sentinel */
    bool refuted;      /* the last master, by ROLE: one sentinel is enough for another */
    ngx_msec_t looked; /* last time, if it watches */
};

/* Returns a new node, or nullptr if there is no memory.  One that watches
 * another closes that when it has another master. */
SentinelNode *create_sentinel_node(const NodeContext &context, SentinelNode *watched);

/* Lets the watching node look, if it is time to.  To be called when calls have
 * been sent. */
void watch_master(SentinelNode &watching);

} // namespace limit_sliding
