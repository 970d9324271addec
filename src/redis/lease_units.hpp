/* Copyright (C) the limit_sliding authors */

/* Leases: units that a call takes beyond those which requests wait for, and
 * requests that spend them. */

#pragma once

#include "redis/script_call.hpp"

namespace limit_sliding {

/* Spends leased units for all of the claims, and returns true, or for none.
 * Units that were spent are then either given back, or decide the claims. */
bool spend_leases(Span<Claim> claims);

/* Gives back what was spent for the claims. */
void return_leases(Span<Claim> claims);

/* Decides the claims by what was spent. */
void describe_leases(Span<Claim> claims);

/* A call is about to ask for the ask's `asked_units`: adds how many are to be
 * leased.  Returns how many keys have some left here: Redis tells whether those
 * keys were forgotten. */
size_t take_leases(Ask &ask);

/* Adds the units that were granted to the leases, or lets those learn of the
 * keys if none were.  The call was sent at that time. */
void add_leases(const Ask &ask, const Answer &answer, ngx_msec_t sent);

/* Admits a waiter by leased units.  Returns false if there are not as many. */
bool admit_by_leases(Waiter &waiter);

} // namespace limit_sliding
