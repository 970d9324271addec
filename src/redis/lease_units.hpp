/*
 * Copyright (C) the limit_sliding authors
 */

/* Units that a call takes beyond those which requests wait for. */

#ifndef LIMIT_SLIDING_REDIS_LEASE_UNITS_HPP
#define LIMIT_SLIDING_REDIS_LEASE_UNITS_HPP

#include "redis/script_reply.hpp"

namespace limit_sliding {

/*
 * Spends leased units for all of the claims, and returns 1, or for none, and
 * returns 0.  What was spent is either given back, or decides the claims.
 */
ngx_uint_t spend_leases(Claim *claims, ngx_uint_t nclaims);
void return_leases(Claim *claims, ngx_uint_t nclaims);
void describe_leases(Claim *claims, ngx_uint_t nclaims);

ngx_uint_t lease_ask(Ask *ask);
void lease_add(Ask *ask, Answer *answer, ngx_msec_t sent);
void lease_waiters(Ask *ask);

} // namespace limit_sliding

#endif
