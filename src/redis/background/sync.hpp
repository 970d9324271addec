/* Copyright (C) the limit_sliding authors */

/*
 * Zones with "sync=time".  This node's memory decides, and admitted units are reported to Redis in
 * the background: all units of a key at once, by one worker, an interval after the last report.
 * The reply sets the state of the key in this node's memory to the use of all nodes.
 */

#pragma once

#include "core/policy/claim.hpp"

namespace limit_sliding {

/* Reports admitted units of the claim's key to Redis in the background, UINT32_MAX at most, or asks
 * for the state of the key if `cost` is 0.  The claim's zone has "sync=". */
void sync_redis(const Claim &claim, uint64_t cost);

/* Takes back units, whether they were reported or not. */
void unsync_redis(const Claim &claim, uint64_t units);

} // namespace limit_sliding
