/* Copyright (C) the limit_sliding authors */

/* Takes and releases units for the requests of this worker, in zones with inflight= and redis=. */

#pragma once

#include <optional>

#include "redis/errands/remote_claim.hpp"

namespace limit_sliding {

/* Takes units for the cost of a claim, which has its RemoteClaim.  Returns the answer, kFailed if
 * Redis cannot decide now; no answer if the waiter will be woken. */
std::optional<WaitResult> take_units(Claim &claim, Waiter *waiter);

/* Tells Redis of the units of a request that on_error has admitted, unless there is no memory. */
void note_units(Claim &claim);

/* Returns true if Redis answers, but grants no units of the zone because of a grace. */
bool waits_for_units(const RemoteZone &zone);

/* Returns the reason why Redis does not decide claims of the zone now, as words behind its name. */
const char *why_undecided(const RemoteZone &zone);

/* Gives back the units that a claim has taken, if any. */
void release_units(RemoteClaim &remote);

} // namespace limit_sliding
