/* Copyright (C) the limit_sliding authors */

/* Claims of zones with "sync=time": this node decides the claims like claims of its own memory, and
 * reports to Redis later. */

#pragma once

#include "http/response/context.hpp"

namespace limit_sliding {

/* Completes a claim with "sync=", which has its RemoteClaim. */
void complete_synced(Claim &claim);

/* Reports the claims with "sync=" of an admitted request to Redis; asks Redis about their keys if
 * the request is rejected.  Other claims are skipped. */
void tell_synced(Span<Claim> claims, bool admitted);

/* Withdraws the reported units of claims with "sync=", because another claim rejects the
 * request. */
void untell_synced(Span<Claim> claims);

/* Do the work of count_remote() and settle_remote(). */
void count_synced(Claim claim);
void settle_synced(const Claim &claim, uint64_t reserved, uint64_t cost, uint64_t admitted_ms);

} // namespace limit_sliding
