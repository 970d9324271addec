/* Copyright (C) the limit_sliding authors */

/* Settlements: asks without a waiter, by which Redis learns what requests turned
 * out to cost.  Charges of a key that nothing was sent of yet are added up. */

#pragma once

#include "redis/ask.hpp"

namespace limit_sliding {

/* Has Redis charge a claim that was admitted so many units more, or give them back
 * if they are negative.  They go back to the lease that they are of, if they can.
 * Nothing happens if Redis does not know of the claim; what there is no room for is
 * counted as unsettled.  This worker's part of the Redis is ready. */
void settle(const Claim &claim, int64_t difference);

/* Prepares what the client has of settlements. */
void init_settling(Client &client);

/* Counts what is left of settlements as the worker exits. */
void end_settling(Client &client);

/* These do nothing for other asks.  The call that is made takes the units that
 * are to be settled; Redis has settled them, but for those that are lost. */
void take_units(Ask &ask);
void units_settled(Ask &ask, uint64_t lost);

} // namespace limit_sliding
