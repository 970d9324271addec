/* Copyright (C) the limit_sliding authors */

/*
 * Bans of a zone, on all nodes.
 *
 * A worker reports a ban that begins to Redis, and one worker of a node at a time asks
 * for the bans of other nodes, by a timer.  So no request waits for this, and no request
 * asks.  Both is one call of bans_script().  Bans that cannot be reported wait in the
 * zone's memory, where the next call of any worker finds them.
 */

#pragma once

#include "redis/calls/remote_claim.hpp"

namespace limit_sliding {

/* To be called when a worker begins, for a zone that has bans. */
void enter_bans(RemoteZone &zone);

/* Tells the other nodes that this node has banned the key of this hash, or that an
 * administrator has lifted its ban.  The zone's bans know it already.  If too much waits
 * for Redis, nobody is told, which is logged. */
void tell_ban(const RemoteZone &zone, uint64_t hash);
void tell_lifted_ban(const RemoteZone &zone, uint64_t hash);

} // namespace limit_sliding
