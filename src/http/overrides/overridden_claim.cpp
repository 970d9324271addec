/* Copyright (C) the limit_sliding authors */

#include "http/overrides/overridden_claim.hpp"

#include "core/policy/claim.hpp"
#include "ngx/memory.hpp"
#include "redis/calls/remote_claim.hpp"

namespace limit_sliding {
namespace {

/* Sets the window of the claim; if none is given, the window of the zone. */
bool set_window(ngx_pool_t *pool, const ZoneConf &zone, const Window &window, Claim &claim) {
    if (!window.is_given() || window == zone.policy.window()) {
        claim.set_policy(zone.policy);
        return true;
    }

    auto *policy = alloc<Policy>(pool);
    if (policy == nullptr) { return false; }

    *policy = with_window(zone.policy, window);
    claim.set_policy(*policy);
    return true;
}

/* Rejects the claim as if its limit were 0. */
bool block(ngx_pool_t *pool, Claim &claim) {
    auto *verdict = alloc<Verdict>(pool);
    if (verdict == nullptr) { return false; }

    *verdict = blocked_verdict(claim.cost);
    claim.verdict = verdict;
    claim.outcome = Outcome::kRejected;
    return true;
}

} // namespace

bool apply_override(ngx_pool_t *pool, const ZoneConf &zone, const Override &own, Claim &claim) {
    claim.limit = own.is_blocked() ? 0 : own.limit;
    if (!set_window(pool, zone, own.window, claim)) { return false; }

    if (claim.is_banned) { return true; }

    claim.verdict = nullptr;
    return !own.is_blocked() || block(pool, claim);
}

} // namespace limit_sliding
