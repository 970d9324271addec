/* Copyright (C) the limit_sliding authors */

/* A request whose keys lie in several slots of a cluster: no script can decide
 * them all, so they are asked at once, each slot by an ask of its own.  Granted
 * units are given back if another slot rejected. */

#pragma once

#include "redis/ask.hpp"

namespace limit_sliding {

/* Asks as ask_redis() does; takes over the ask, whose slot is kMixedSlots. */
bool ask_across_slots(Ask &ask, Span<Claim> claims, Waiter *waiter);

} // namespace limit_sliding
