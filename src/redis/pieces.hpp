/* Copyright (C) the limit_sliding authors */

/* A request whose limits no single call can decide: they are of several Redises,
 * or their keys lie in several slots of a cluster.  It is asked in pieces, all at
 * once: each piece is of one Redis and slot, and has an ask of its own.  If one
 * piece rejects, what others were granted is given back. */

#pragma once

#include "redis/ask.hpp"

namespace limit_sliding {

/* Asks for claims of several Redises as ask_redis() does. */
bool ask_in_pieces(Span<Claim> claims, Waiter *waiter);

/* The same for claims of one cluster.  It takes over their ask, which is of
 * kMixedSlots. */
bool ask_in_pieces(Ask &ask, Span<Claim> claims, Waiter *waiter);

/* Gives back in the background what the claims were granted, as their request is
 * rejected nevertheless.  Claims that were granted nothing are left alone. */
void give_back_granted(Span<Claim> claims);

} // namespace limit_sliding
