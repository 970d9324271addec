/* Copyright (C) the limit_sliding authors */

/* Requests that no single call can decide, because their limits are in several Redises, or their
 * keys are in several slots of a cluster.  Pieces of one Redis and slot, with an ask each, are
 * sent at once.  If a piece is rejected, the units granted to other pieces are refunded. */

#pragma once

#include "redis/calls/ask.hpp"

namespace limit_sliding {

/* Does the work of ask_redis() for claims of several Redises, or of one cluster: then takes over
 * their ask, which is of kMixedSlots.  nullptr: they are of several Redises. */
bool ask_in_pieces(Span<Claim> claims, Ask *mixed, Waiter *waiter);

/* Refunds the granted units of the claims in the background, because their request is rejected
 * nevertheless.  Ignores claims without granted units. */
void give_back_granted(Span<Claim> claims);

} // namespace limit_sliding
