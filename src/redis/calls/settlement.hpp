/* Copyright (C) the limit_sliding authors */

/* Settlements: asks without a waiter, which report the final costs of requests to Redis.  Unsent
 * charges of a key are added up. */

#pragma once

#include "redis/calls/ask.hpp"

namespace limit_sliding {

/* Charges a claim that was admitted `difference` units more in Redis, or refunds them if they are
 * negative: to their lease, if they were leased.  Does nothing if Redis does not know of the
 * claim, and counts units without room as unsettled.  This worker's part of the Redis is ready. */
void settle(const Claim &claim, int64_t difference);

/* Prepares the client's list of settlements. */
void init_settling(Client &client);

/* Counts the unsettled units as the worker exits. */
void end_settling(Client &client);

} // namespace limit_sliding
