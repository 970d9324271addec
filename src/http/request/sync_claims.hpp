/* Copyright (C) the limit_sliding authors */

/* Limits of a request in zones with "sync=time": this node decides them like the limits of
 * its own memory, and reports to Redis later. */

#pragma once

#include "http/response/context.hpp"

namespace limit_sliding {

/* True for a claim of such a zone. */
inline bool is_synced(const Claim &claim) {
    return claim.remote != nullptr && remote_of(claim).zone->outbox != nullptr;
}

/* True for one that Redis decides. */
inline bool is_asked(const Claim &claim) { return claim.remote != nullptr && !is_synced(claim); }

/* Completes such a claim, which add_remote() has made one of the zone. */
void complete_synced(Claim &claim);

/* Has Redis told of a request that such claims have admitted, or asked if it is
 * rejected; other claims are passed over. */
void tell_synced(Span<Claim> claims, bool admitted);

/* Takes back the units reported to Redis for a request that such claims had admitted, and
 * that another claim rejects. */
void untell_synced(Span<Claim> claims);

/* Records the cost of such a claim, which has reserved nothing, if there is room for it. */
void count_synced(Claim claim);

/* Replaces the reserved cost of such a claim by the final cost of the request. */
void settle_synced(const Claim &claim, uint64_t reserved, uint64_t cost, uint64_t admitted_ms);

} // namespace limit_sliding
