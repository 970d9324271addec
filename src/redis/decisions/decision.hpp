/* Copyright (C) the limit_sliding authors */

/* Decisions: asks that requests wait for, or that count units for nobody; and leases, units that a
 * call takes beyond these, for requests to spend without asking. */

#pragma once

#include "redis/asks/ask.hpp"

namespace limit_sliding {

extern const AskKind kDecision;

/* Claim::complete() of claims that Redis has admitted. */
void complete_verdict(const Claim &claim);

/* Remembers the verdict of a claim, from a call that was sent at `asked` ms: until its retry time
 * for requests of the key, and without a retry time for requests that another limit rejects. */
void add_refusal(const RemoteZone &zone, const Claim &claim, const Verdict &verdict,
                 ngx_msec_t asked);

/* Spends leased units for all of the claims and returns true; or for none, and returns false.
 * return_leases() or describe_leases() must follow a success. */
bool spend_leases(Span<Claim> claims);

/* Gives back the units spent for the claims. */
void return_leases(Span<Claim> claims);

/* Decides the claims by the spent units. */
void describe_leases(Span<Claim> claims);

} // namespace limit_sliding
