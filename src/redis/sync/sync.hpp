/* Copyright (C) the limit_sliding authors */

/*
 * Zones with "sync=time".  This node's memory decides, and the total of a key is reported to Redis
 * in the background: by one worker, an interval after the last report.  Redis consumes what the
 * total has grown by since the last report that it got, so a report may be sent again.  The reply
 * tells what all nodes use, and the sum of the totals of other nodes.  What others use is added to
 * the key in this node's memory, which never forgets what this node has admitted itself.
 */

#pragma once

#include "core/policy/claim.hpp"

namespace limit_sliding {

/* Reports admitted units of the claim's key to Redis in the background, or with a negative number
 * units that were given back, UINT32_MAX at most; or asks for the state of the key if there are
 * none.  The claim's zone has "sync=". */
void sync_redis(const Claim &claim, int64_t units);

} // namespace limit_sliding
