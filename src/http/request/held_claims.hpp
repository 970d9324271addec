/* Copyright (C) the limit_sliding authors */

/* Claims of zones with inflight= in Redis.  A request holds units of the worker's share in Redis,
 * and as many units in this node's memory, which the API shows and on_error=local needs. */

#pragma once

#include "http/response/context.hpp"

namespace limit_sliding {

/* Completes a claim, which has its RemoteClaim.  The caller must call release_units(). */
void complete_held(Claim &claim);

/* Does the same, and calls release_units() when the request ends.  Returns false if there is no
 * memory. */
bool complete_held(ngx_http_request_t *r, Claim &claim);

/* Decides a claim.  Returns false if the waiter will be woken, and end_hold() has to decide. */
bool hold_units(Claim &claim, Waiter *waiter);

/* Decides a claim once its waiter is woken. */
void end_hold(Claim &claim, WaitResult result);

/* Gives back the units in flight of claims whose request is not admitted, here and in Redis.  Other
 * claims are skipped. */
void release_held(Span<Claim> claims);

} // namespace limit_sliding
