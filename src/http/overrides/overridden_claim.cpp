/* Copyright (C) the limit_sliding authors */

#include "http/overrides/overridden_claim.hpp"

#include "core/policy/claim.hpp"
#include "ngx/memory.hpp"
#include "redis/errands/remote_claim.hpp"

namespace limit_sliding {
namespace {

/* Returns true if the zone has another window. */
bool has_own_window(const ZoneConf &zone, const Override &own) {
    return own.window.is_given() && own.window != zone.policy.window();
}

/* Applies an override; the parts may be nullptr if the claim needs none. */
void apply(const ZoneConf &zone, const Override &own, Claim &claim, OverriddenParts *parts) {
    claim.limit = own.is_blocked() ? 0 : own.limit;
    claim.set_policy(zone.policy); /* first, because the claim may have the policy of the parts */
    if (has_own_window(zone, own)) {
        parts->policy = with_window(zone.policy, own.window);
        claim.set_policy(parts->policy);
    }

    if (claim.is_banned()) { return; }

    claim.verdict = nullptr;
    if (!own.is_blocked()) { return; }

    parts->verdict = blocked_verdict(claim.cost);
    claim.verdict = &parts->verdict;
    claim.outcome = Outcome::kRejected;
}

} // namespace

void apply_override(const ZoneConf &zone, const Override &own, Claim &claim,
                    OverriddenParts &parts) {
    apply(zone, own, claim, &parts);
}

bool apply_override(ngx_pool_t *pool, const ZoneConf &zone, const Override &own, Claim &claim) {
    OverriddenParts *parts = nullptr;
    if (own.is_blocked() || has_own_window(zone, own)) {
        parts = alloc<OverriddenParts>(pool);
        if (parts == nullptr) { return false; }
    }

    apply(zone, own, claim, parts);
    return true;
}

} // namespace limit_sliding
