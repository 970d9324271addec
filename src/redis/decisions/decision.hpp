/* Copyright (C) the limit_sliding authors */

/* Asks that decide requests.  A call may lease further units. */

#pragma once

#include "redis/asks/ask.hpp"

namespace limit_sliding {

extern const AskKind kDecision;

/* Claim::complete() of claims that Redis has admitted. */
void complete_verdict(const Claim &claim);

/* Remembers the verdict of a claim from a call that was sent at `asked` ms.  With a retry time, the
 * refusal rejects requests until then.  Without one, it describes the claim in the headers of a
 * request that another limit rejects. */
void add_refusal(const RemoteZone &zone, const Claim &claim, const Verdict &verdict,
                 ngx_msec_t asked);

/* Spends leased units for all claims and returns true, or spends none and returns false.  If true,
 * the caller must call return_leases() or describe_leases(). */
bool spend_leases(Span<Claim> claims);

/* Gives back the units spent for the claims. */
void return_leases(Span<Claim> claims);

/* Decides the claims by the spent units. */
void describe_leases(Span<Claim> claims);

} // namespace limit_sliding
