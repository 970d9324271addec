/* Copyright (C) the limit_sliding authors */

/* Leases: units that a call takes beyond the waiting requests' units, and
 * requests that spend them. */

#pragma once

#include "redis/calls/script_call.hpp"

namespace limit_sliding {

/* Spends leased units for all of the claims, and returns true, or for none.
 * Units that were spent are then either given back, or decide the claims. */
bool spend_leases(Span<Claim> claims);

/* Gives back the units spent for the claims. */
void return_leases(Span<Claim> claims);

/* Decides the claims by the spent units. */
void describe_leases(Span<Claim> claims);

/* A call is about to ask for the ask's `asked_units`: adds how many are to be
 * leased.  Returns how many keys have some left here: Redis tells whether these
 * keys were forgotten. */
size_t take_leases(Ask &ask);

/* Adds the granted units to the leases, or updates the leases from the reply if none
 * were granted.  The call was sent at that time. */
void add_leases(const Ask &ask, const Answer &answer, ngx_msec_t sent);

/* Admits a waiter by leased units.  Returns false if there are not as many. */
bool admit_by_leases(Waiter &waiter);

} // namespace limit_sliding
