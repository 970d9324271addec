/* Copyright (C) the limit_sliding authors */

/*
 * The exchange of the bans of a zone between nodes.
 *
 * A worker reports a ban that begins to Redis, and one worker of a node at a time asks for the
 * bans of other nodes, by a timer.  Therefore no request waits for Redis.  One call of
 * bans_script() does both.  Bans that cannot be reported wait in the zone's memory for the next
 * call of any worker.
 */

#pragma once

#include "redis/errands/remote_claim.hpp"

namespace limit_sliding {

/* Begins the exchange in a new worker, for a zone that has bans. */
void enter_bans(RemoteZone &zone);

/* Report to the other nodes that this node has banned the key with this hash, or that an
 * administrator has lifted the ban, after the zone's bans were changed.  If too many reports wait
 * for Redis, the report is dropped, which is logged. */
void tell_ban(const RemoteZone &zone, uint64_t hash);
void tell_lifted_ban(const RemoteZone &zone, uint64_t hash);

} // namespace limit_sliding
