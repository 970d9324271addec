/* Copyright (C) the limit_sliding authors */

#include "http/request/sync_claims.hpp"

#include "core/limiter/limiter.hpp"
#include "redis/errands/redis_instance.hpp"
#include "redis/sync/sync.hpp"

namespace limit_sliding {

void complete_synced(Claim &claim) {
    auto &remote = remote_of(claim);
    remote.source = is_away(*remote.zone->redis) ? Source::kFallback : Source::kCache;
    remote.asked_limit = claim.limit;

    /* A ban, or the rate "0" of the request, may have rejected the claim. */
    if (!claim.is_here()) { return; }

    const OverrideCache &last = *remote.zone->last_overrides;
    const Override own = last.has_overrides() ? last.find(claim.key_hash()) : Override{};
    if (own.is_set()) { (void)apply_known(claim, own); }

    claim.fit_core();
}

void tell_synced(Span<Claim> claims, bool admitted) {
    for (const auto &claim : claims) {
        if (!is_synced(claim) || claim.standing == Standing::kBanned) { continue; }

        /* Redis would take the limit 0 of a request with the rate "0" for no limit. */
        auto &remote = remote_of(claim);
        if (remote.asked_limit == 0 || remote.is_pending) { continue; }

        remote.is_pending = admitted && claim.is_here() && claim.purpose == Purpose::kConsume;
        sync_redis(claim, remote.is_pending ? static_cast<int64_t>(claim.cost) : 0);
    }
}

void untell_synced(Span<Claim> claims) {
    for (const auto &claim : claims) {
        if (!is_synced(claim) || !remote_of(claim).is_pending) { continue; }

        remote_of(claim).is_pending = false;
        sync_redis(claim, -static_cast<int64_t>(claim.cost));
    }
}

void count_synced(Claim claim) {
    if (!claim.is_here()) { return; }

    (void)acquire(&claim, 1, ngx_current_msec);
    sync_redis(claim, is_admitted(claim) ? static_cast<int64_t>(claim.cost) : 0);
}

void settle_synced(const Claim &claim, uint64_t reserved, uint64_t cost, uint64_t admitted_ms) {
    const auto now_ms = ngx_current_msec;
    if (!claim.is_here() || cost == reserved) { return; }

    if (cost > reserved) {
        const auto lost = charge(claim, cost - reserved, now_ms);
        sync_redis(claim, static_cast<int64_t>(cost - reserved - lost));
        return;
    }

    refund(claim, reserved - cost, admitted_ms, now_ms);
    if (!is_past(claim, admitted_ms, now_ms)) {
        sync_redis(claim, -static_cast<int64_t>(reserved - cost));
    }
}

} // namespace limit_sliding
