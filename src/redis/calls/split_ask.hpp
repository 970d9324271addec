/* Copyright (C) the limit_sliding authors */

/* A request that no single call can decide: its limits are in several Redises,
 * or their keys lie in several slots of a cluster.  It is asked in pieces, all at
 * once: each piece is of one Redis and slot, and has an ask of its own.  If one
 * piece rejects, the units granted to others are given back. */

#pragma once

#include "redis/calls/ask.hpp"

namespace limit_sliding {

/* Asks for claims of several Redises as ask_redis() does. */
bool ask_in_pieces(Span<Claim> claims, Waiter *waiter);

/* The same for claims of one cluster.  It takes over their ask, which is of
 * kMixedSlots. */
bool ask_in_pieces(Ask &ask, Span<Claim> claims, Waiter *waiter);

/* Gives back the granted units of the claims in the background, as their request is
 * rejected nevertheless.  Claims that were granted nothing are left alone. */
void give_back_granted(Span<Claim> claims);

} // namespace limit_sliding
