/* Copyright (C) the limit_sliding authors */

#include "http/request/held_claims.hpp"

#include "core/holds/hold.hpp"
#include "core/limiter/limiter.hpp"
#include "redis/shares/claim_units.hpp"

namespace limit_sliding {
namespace {

/* Holds the units of a claim in this node's memory, under this limit.  Returns false, and rejects
 * the claim, if there is no room.  With kLimitOff, a full memory does not reject the claim. */
bool hold_here(Claim &claim, uint64_t limit) {
    auto &remote = remote_of(claim);
    auto local = as_local(claim, limit);
    (void)acquire(&local, 1, ngx_current_msec);
    if (is_admitted(local) || limit == kLimitOff) { return true; }

    remote.verdict = local.describe(ngx_current_msec);
    remote.source = Source::kLocal;
    claim.limit = limit;
    decide_remotely(claim, local.outcome);
    release_units(remote);
    return false;
}

/* Holds units that Redis has granted in this node's memory as well.  They exceed the limit there
 * only if on_error has admitted requests, or if another worker knows another limit of the key. */
void hold_granted(Claim &claim) {
    (void)hold_here(claim, claim.standing == Standing::kUnlimited ? kLimitOff : claim.limit);
}

/* Returns the units that are left in this node's memory under the limit. */
uint64_t remaining_here(const Claim &claim, uint64_t limit) {
    auto look = as_local(claim, limit);
    look.purpose = Purpose::kLook;
    look.cost = 0;
    (void)acquire(&look, 1, ngx_current_msec);
    return look.describe(ngx_current_msec).remaining;
}

/* Decides a claim by on_error, because Redis did not answer. */
void hold_away(Claim &claim) {
    auto &remote = remote_of(claim);
    const auto on_error = *remote.zone->on_error;
    auto &verdict = remote.verdict;
    if (waits_for_units(*remote.zone)) {
        add(&remote.zone->redis->client.calls->grace_decisions, 1);
    }

    remote.own = remote.zone->last_overrides->find(claim.key_hash());
    remote.source = Source::kFallback;
    const Terms terms = terms_of(remote.own);
    verdict = verdict_of(limit_under(remote.own, claim.limit), 0);
    if (on_error == OnError::kDeny) {
        verdict.retry_after_ms = kBreakerIntervalMs;
        decide_remotely(claim, Outcome::kRejected);
        return;
    }

    const bool allows = on_error == OnError::kAllow || terms == Terms::kUnlimited;
    if (!allows && terms == Terms::kBlocked) {
        verdict = blocked_verdict(claim.cost);
        decide_remotely(claim, Outcome::kRejected, Standing::kBlocked);
        return;
    }

    if (!hold_here(claim, allows ? kLimitOff : verdict.limit)) { return; }

    verdict.remaining = allows ? verdict.limit : remaining_here(claim, verdict.limit);
    decide_remotely(claim, Outcome::kAdmitted,
                    terms == Terms::kUnlimited ? Standing::kUnlimited : Standing::kGiven);
    note_units(claim);
}

} // namespace

void complete_held(Claim &claim) {
    claim.fit_core();
    remote_of(claim).share = nullptr;
    remote_of(claim).source = Source::kLocal; /* until Redis or on_error decides the claim */
}

bool complete_held(ngx_http_request_t *r, Claim &claim) {
    auto *cleanup = ngx_pool_cleanup_add(r->pool, 0);
    if (cleanup == nullptr) { return false; }

    cleanup->handler = [](void *data) { release_units(*static_cast<RemoteClaim *>(data)); };
    cleanup->data = claim.remote;
    complete_held(claim);
    return true;
}

bool hold_units(Claim &claim, Waiter *waiter) {
    const std::optional<WaitResult> result = take_units(claim, waiter);
    if (result.has_value()) { end_hold(claim, *result); }

    return result.has_value();
}

void end_hold(Claim &claim, WaitResult result) {
    if (result == WaitResult::kFailed) {
        hold_away(claim);
    } else if (result == WaitResult::kAdmitted) {
        hold_granted(claim);
    }
}

void release_held(Span<Claim> claims) {
    for (auto &claim : claims) {
        if (claim.hold != nullptr) { claim.hold->release(); }

        if (is_held(claim)) { release_units(remote_of(claim)); }
    }
}

} // namespace limit_sliding
