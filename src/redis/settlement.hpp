/* Copyright (C) the limit_sliding authors */

/* Settlements: asks without a waiter, by which Redis learns what requests turned
 * out to cost.  Charges of a key that nothing was sent of yet are added up. */

#pragma once

#include "redis/ask.hpp"

namespace limit_sliding {

/* Makes of a claim that was admitted one that settles the difference of its
 * costs.  Returns false if Redis is not to be told: it does not know of the
 * claim, or the units go back to a lease. */
bool make_settlement(const Claim &claim, int64_t difference, Claim *settled);

/* Has such a claim settled.  Returns as many units of its cost as there is room
 * for. */
uint64_t settle(Redis &redis, const Claim &settled);

/* Prepares what the client has of settlements. */
void init_settling(Client &client);

/* Counts what is left of settlements as the worker exits. */
void end_settling(Client &client);

/* These do nothing for other asks.  The call that is made takes the units that
 * are to be settled; Redis has settled them, but for those that are lost. */
void take_units(Ask &ask);
void units_settled(Ask &ask, uint64_t lost);

} // namespace limit_sliding
