/* Copyright (C) the limit_sliding authors */

/* Leases: units that a call takes beyond the units of the waiting requests, and requests that
 * spend leased units. */

#pragma once

#include "redis/calls/script_call.hpp"

namespace limit_sliding {

/* Spends leased units for all of the claims and returns true; or for none, and returns false.
 * return_leases() or describe_leases() must follow a success. */
bool spend_leases(Span<Claim> claims);

/* Gives back the units spent for the claims. */
void return_leases(Span<Claim> claims);

/* Decides the claims by the spent units. */
void describe_leases(Span<Claim> claims);

/* Adds the units to be leased to the `asked_units` of an ask that is being sent. */
void take_leases(Ask &ask);

/* Adds the granted units to the leases, or updates the leases from the reply if no units were
 * granted.  The call was sent at `sent` ms. */
void add_leases(const Ask &ask, const Answer &answer, ngx_msec_t sent);

/* Admits a waiter by leased units.  Returns false if there are too few. */
bool admit_by_leases(Waiter &waiter);

} // namespace limit_sliding
