/* Copyright (C) the limit_sliding authors */

/* Settlements: asks without a waiter, which report the final costs of requests to
 * Redis.  Unsent charges of a key are added up. */

#pragma once

#include "redis/calls/ask.hpp"

namespace limit_sliding {

/* Has Redis charge a claim that was admitted so many units more, or give them back
 * if they are negative.  They go back to their lease, if they can.
 * Nothing happens if Redis does not know of the claim; units without room are counted
 * as unsettled.  This worker's part of the Redis is ready. */
void settle(const Claim &claim, int64_t difference);

/* Prepares the client's list of settlements. */
void init_settling(Client &client);

/* Counts the unsettled units as the worker exits. */
void end_settling(Client &client);

/* These do nothing for other asks.  The call that is made takes the units that
 * are to be settled; Redis has settled them, but for lost ones. */
void take_units(Ask &ask);
void units_settled(Ask &ask, uint64_t lost);

} // namespace limit_sliding
