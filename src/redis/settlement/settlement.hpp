/* Copyright (C) the limit_sliding authors */

/* Settlements: asks without a waiter, which report the final costs of requests to Redis.  Unsent
 * charges of a key are added up. */

#pragma once

#include "redis/asks/ask.hpp"

namespace limit_sliding {

/* Settles a claim that was admitted, with its RemoteClaim as the answer left it, in the background:
 * charges the difference, or refunds it if it is negative, to its lease if it was leased.  Units
 * that Redis does not take are counted as unsettled. */
void settle_redis(const Claim &claim, int64_t difference);

/* Counts units of settlements that Redis has not taken. */
void count_unsettled(const Client &client, uint64_t units);

/* Prepares the client's list of settlements. */
void init_settling(Client &client);

/* Counts the unsettled units as the worker exits. */
void end_settling(Client &client);

} // namespace limit_sliding
