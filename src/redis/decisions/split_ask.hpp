/* Copyright (C) the limit_sliding authors */

/* Requests that no single call can decide, because their limits are in several Redises, or their
 * keys are in several slots of a cluster.  The claims of each Redis and slot are a piece with an
 * ask of its own, and all asks are sent at once.  If a piece is rejected, the units granted to
 * other pieces are refunded. */

#pragma once

#include "redis/asks/ask.hpp"

namespace limit_sliding {

/* Does the work of ask_redis() for claims in several Redises (`mixed` is nullptr), or in several
 * slots of one cluster: `mixed` is their ask of kMixedSlots, which this function frees. */
bool ask_in_pieces(Span<Claim> claims, Ask *mixed, Waiter *waiter);

/* Refunds the granted units of the claims in the background, because their request is rejected
 * nevertheless.  Ignores claims without granted units. */
void give_back_granted(Span<Claim> claims);

} // namespace limit_sliding
