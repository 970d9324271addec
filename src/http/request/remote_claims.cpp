/* Copyright (C) the limit_sliding authors */

/* Groups with limits in Redis.  Leases of all keys, or the known refusal of one, decide a request
 * at once.  Else the request is suspended until Redis replies.  If Redis does not answer, on_error
 * decides. */

#include "http/request/remote_claims.hpp"

#include <algorithm>
#include <new>

#include "core/limiter/limiter.hpp"
#include "http/conf/configuration.hpp"
#include "http/request/suspend.hpp"
#include "http/request/sync_claims.hpp"
#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "redis/calls/client.hpp"
#include "redis/shared/breaker.hpp"
#include "redis/shared/refusals.hpp"

namespace limit_sliding {
namespace {

/* Adds the next claims, which have their outcomes, to the context. */
Decision account_all(Context &ctx, Span<Claim> claims) {
    return ctx.add_decided(claims, describing(claims.begin(), claims.size(), ctx.now_ms));
}

/* Consumes all claims and returns true, or consumes none and returns false. */
bool acquire_all(Span<Claim> claims, uint64_t now_ms) {
    return claims.empty() || is_admitted(claims[acquire(claims.begin(), claims.size(), now_ms)]);
}

/* Refunds the units that claims of this node reserved before Redis was asked about other claims. */
void release_all(Span<Claim> claims) {
    untell_synced(claims);
    release(claims.begin(), claims.size(), ngx_current_msec);
}

/* Returns a copy of a claim in Redis that this node's memory can decide. */
Claim as_local(Claim claim) {
    claim.verdict = nullptr;
    claim.fit_core();
    return claim;
}

/* Also counts the units that Redis admits in this node's memory, in case Redis fails later. */
void keep_warm(Span<Claim> remotes, uint64_t now_ms) {
    for (const auto &remote : remotes) {
        if (remote.purpose == Purpose::kConsume && !remote_of(remote).own.is_unlimited()) {
            auto claim = as_local(remote);
            (void)acquire(&claim, 1, now_ms);
        }
    }
}

Verdict verdict_of(uint64_t limit, uint64_t remaining, uint64_t reset_ms) {
    Verdict verdict = {};
    verdict.limit = limit;
    verdict.remaining = remaining;
    verdict.reset_ms = reset_ms;
    return verdict;
}

/* Returns the verdict of a refusal, a reply of Redis that is at most a second old. */
Verdict verdict_of(const Refusal &refusal, uint64_t now_ms) {
    return verdict_of(refusal.limit, refusal.remaining,
                      std::max(refusal.reset_ms, now_ms) - now_ms);
}

/* Describes a claim that is undecided because another claim rejects: by the last reply about its
 * key, else by this node's count. */
Verdict describe_undecided(Claim &claim, uint64_t now_ms) {
    uint64_t limit = claim.limit;

    if (claim.remote != nullptr) {
        const auto &zone = *remote_of(claim).zone;
        know_window(claim);

        Refusal refusal;
        if (zone.refusals->find(refusal_hash(claim), now_ms, &refusal)) {
            return verdict_of(refusal, now_ms);
        }

        const auto own = zone.told->find(claim.key_hash());
        if (own.is_unlimited()) { return verdict_of(limit, limit, 0); }

        if (own.is_blocked()) { return blocked_verdict(claim.cost); }

        limit = own.is_set() ? own.limit : limit;
    }

    auto look = claim;
    look.limit = limit;
    look.purpose = Purpose::kLook;
    look = as_local(look);
    (void)acquire(&look, 1, now_ms);
    return look.describe(now_ms);
}

/* Rejects the claim and returns true if a refusal of its key is known; else the claim stays
 * undecided. */
bool reject_known(Claim &claim, uint64_t now_ms) {
    auto &remote = remote_of(claim);
    auto &verdict = remote.verdict;
    claim.outcome = Outcome::kUndecided;
    know_window(claim);

    Refusal refusal;
    if (!remote.zone->refusals->find(refusal_hash(claim), now_ms, &refusal) || refusal.admits) {
        return false;
    }

    const auto over = claim.cost - std::min(claim.cost, refusal.remaining);
    verdict = verdict_of(refusal, now_ms);
    verdict.excess = over * 1000;
    verdict.retry_after_ms = refusal.until_ms - now_ms;
    if (refusal.limit == 0) {
        verdict = blocked_verdict(claim.cost);
    } else if (verdict.reset_ms == 0) {
        verdict.reset_ms = verdict.retry_after_ms;
    }

    remote.source = Source::kCache;
    set_told(claim, Outcome::kRejected);
    return true;
}

/* Rejects a request by some claims, so that Redis need not be asked about the open claims. */
Decision refuse(ngx_http_request_t *r, Context &ctx, Span<Claim> all, Span<Claim> open) {
    size_t n = all.size();

    for (auto &claim : open) {
        claim.outcome = Outcome::kUndecided;
    }

    /* Only the fields of the draft describe other claims of a rejected request. */
    if ((ctx.headers & kHeaderDraft) == 0 || limit_of(all[0]).dry_run) {
        n = 0;

        for (auto &claim : all) {
            if (claim.outcome == Outcome::kUndecided) { continue; }

            if (&claim != &all[n]) { std::swap(claim, all[n]); }

            n++;
        }
    }

    for (auto &claim : Span(all.begin(), n)) {
        if (claim.outcome != Outcome::kUndecided) { continue; }

        auto *verdict
            = claim.remote != nullptr ? &remote_of(claim).verdict : alloc<Verdict>(r->pool);
        if (verdict == nullptr) { return Decision::kFailed; }

        *verdict = describe_undecided(claim, ctx.now_ms);
        claim.limit = verdict->limit;
        claim.verdict = verdict;
    }

    return account_all(ctx, {all.begin(), n});
}

/* Returns true if a ban, a rate "0" or an override "0" has rejected the claim already. */
bool is_blocked(const Claim &claim) { return claim.verdict != nullptr && !is_admitted(claim); }

/* Rejects a request with blocked claims, so that Redis need not be asked about the others. */
Decision refuse_blocked(ngx_http_request_t *r, Context &ctx, Span<Claim> all) {
    for (auto &claim : all) {
        if (claim.remote != nullptr) { remote_of(claim).source = Source::kLocal; }

        if (!is_blocked(claim)) { claim.outcome = Outcome::kUndecided; }
    }

    return refuse(r, ctx, all, {all.begin(), size_t{0}});
}

/* Decides a request by the claims of this node, because leases admit the claims in Redis. */
Decision decide_by_leases(ngx_http_request_t *r, Context &ctx, const JointClaims &claims) {
    const auto remote = claims.remote;
    if (!acquire_all(claims.local, ctx.now_ms)) {
        return_leases(remote);
        return refuse(r, ctx, claims.all, claims.remote);
    }

    /* The leases have set the limits in force. */
    describe_leases(remote);
    keep_warm(remote, ctx.now_ms);
    return account_all(ctx, claims.all);
}

/* Decides a claim by on_error.  Returns false if this node's memory must decide the claim. */
bool decide_unasked(Claim &claim) {
    auto &remote = remote_of(claim);
    const auto on_error = *remote.zone->on_error;
    auto &verdict = remote.verdict;
    remote.source = Source::kFallback;

    /* The override from the last reply of Redis remains in force. */
    remote.own = remote.zone->told->find(claim.key_hash());
    set_window(claim, remote.own);
    if (remote.own.is_limited()) { claim.limit = remote.own.limit; }

    if (on_error == OnError::kLocal && remote.own.is_blocked()) {
        verdict = blocked_verdict(claim.cost);
        set_told(claim, Outcome::kRejected);
        return true;
    }

    if (on_error == OnError::kLocal && !remote.own.is_unlimited()) {
        claim = as_local(claim);
        return false;
    }

    const bool admits = on_error != OnError::kDeny;
    verdict = verdict_of(claim.limit, admits ? claim.limit : 0, admits ? 0 : kBreakerIntervalMs);
    verdict.retry_after_ms = verdict.reset_ms;
    set_told(claim, admits ? Outcome::kAdmitted : Outcome::kRejected);
    return true;
}

/* Decides by on_error the claims of each Redis that is known not to answer, and moves them to the
 * claims of this node: Redis need not be asked about a request that they reject. */
void decide_away(JointClaims &claims) {
    auto *asked = claims.remote.begin();

    for (auto &claim : claims.remote) {
        if (can_ask(*remote_of(claim).zone->redis)) { continue; }

        (void)decide_unasked(claim);
        std::rotate(asked, &claim, &claim + 1);
        asked++;
    }

    claims.remote = {asked, static_cast<size_t>(claims.all.end() - asked)};
    claims.local = {claims.all.begin(), claims.all.size() - claims.remote.size()};
}

/* Decides by on_error the claims without a reply. */
Decision fall_back(Context &ctx, const JointClaims &claims) {
    ctx.now_ms = ngx_current_msec;

    for (auto &claim : claims.remote) {
        if (claim.outcome == Outcome::kUndecided) { (void)decide_unasked(claim); }
    }

    if (acquire_all(claims.remote, ctx.now_ms)) {
        for (auto &claim : claims.remote) {
            if (remote_of(claim).source != Source::kFallback) {
                keep_warm({&claim, 1}, ctx.now_ms);
            }
        }
    } else {
        release_all(claims.local);
        give_back_granted(claims.remote);
    }

    return account_all(ctx, claims.all);
}

/* Resumes a request after the reply, or the failure, of Redis. */
void end_ask(const RemoteWait &wait) {
    auto *r = wait.request;
    auto *c = r->connection;
    if (!is_waiting(r, &wait)) { return; }

    ngx_http_set_log_request(c->log, r);
    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, c->log, 0, "limit_sliding told");

    resume(r);
    ngx_http_run_posted_requests(c);
}

void write_handler(ngx_http_request_t *r) {
    if (ngx_handle_write_event(r->connection->write, 0) == NGX_OK) { return; }

    (void)end_wait(r);
    ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
}

/* Creates the wait of a request, which is used again if the request waits again. */
RemoteWait *create_wait(ngx_http_request_t *r) {
    auto *cln = ngx_http_cleanup_add(r, sizeof(RemoteWait));
    if (cln == nullptr) { return nullptr; }

    cln->handler = [](void *data) { leave_ask(&static_cast<RemoteWait *>(data)->waiter); };

    auto *wait = new (cln->data) RemoteWait();
    wait->request = r;
    init_event<end_ask>(wait->waiter.event, *wait);
    return wait;
}

/* Asks Redis about the remote claims, and suspends the request. */
Decision ask(ngx_http_request_t *r, Context &ctx, const JointClaims &claims) {
    auto &wait = *ctx.wait;

    /* A redirect may have ended an earlier wait without leaving its ask. */
    leave_ask(&wait.waiter);
    wait.claims = claims;
    if (!ask_redis(claims.remote, &wait.waiter)) { return fall_back(ctx, claims); }

    /* The client of Redis ends the wait after `timeout`, so the request needs no timer. */
    if (!suspend(r, write_handler, &wait)) {
        leave_ask(&wait.waiter);
        return Decision::kFailed;
    }

    /* A reply about a key with "sync=" may arrive during the wait.  It replaces this node's count
     * of the key by the count of Redis and the units to report, so these units are reported now. */
    if (!claims.local.empty()) { tell_synced(claims.local, true); }

    return Decision::kAsked;
}

} // namespace

/* Gives the claim its RemoteClaim.  A reply or a verdict sets the other fields: to clear them would
 * take 130 instructions. */
ngx_int_t complete_remote(ngx_http_request_t *r, Claim &claim, ZoneConf &zone,
                          const ngx_str_t &key) {
    auto *remote = alloc<RemoteClaim>(r->pool);
    if (remote == nullptr) { return NGX_ERROR; }

    remote->zone = &zone.remote;
    remote->key = key;
    remote->source = Source::kRedis;
    remote->own = {};
    remote->asked_limit = 0;
    remote->pace = claim.pace();
    remote->asked = claim.policy;
    remote->is_pending = false;
    claim.remote = remote;
    if (is_synced(claim)) { complete_synced(claim); }

    return NGX_OK;
}

Decision decide_remote(ngx_http_request_t *r, Context &ctx, Span<Claim> all) {
    auto *first
        = std::find_if(all.begin(), all.end(), [](const Claim &claim) { return is_asked(claim); });
    if (first == all.end()) {
        return ctx.add_decided(all, acquire(all.begin(), all.size(), ctx.now_ms));
    }

    const size_t nlocal = first - all.begin();
    JointClaims claims = {all, {all.begin(), nlocal}, {first, all.size() - nlocal}};

    if (std::any_of(all.begin(), all.end(), is_blocked)) { return refuse_blocked(r, ctx, all); }

    if (spend_leases(claims.remote)) { return decide_by_leases(r, ctx, claims); }

    bool known = false;
    for (auto &claim : claims.remote) {
        known |= reject_known(claim, ctx.now_ms);
    }

    if (known) { return refuse(r, ctx, claims.all, claims.local); }

    decide_away(claims);

    const bool asks = !claims.remote.empty();
    if (asks && ctx.wait == nullptr && (ctx.wait = create_wait(r)) == nullptr) {
        return Decision::kFailed;
    }

    if (!acquire_all(claims.local, ctx.now_ms)) {
        return refuse(r, ctx, claims.all, claims.remote);
    }

    return asks ? ask(r, ctx, claims) : account_all(ctx, claims.all);
}

Decision decide_replied(ngx_http_request_t *r, Context &ctx) {
    const auto &claims = ctx.wait->claims;
    const auto told = ctx.wait->waiter.told;
    if (told == Told::kFailed) { return fall_back(ctx, claims); }

    if (told == Told::kRejected) {
        release_all(claims.local);
        return refuse(r, ctx, claims.all, {});
    }

    keep_warm(claims.remote, ngx_current_msec);
    return account_all(ctx, claims.all);
}

void count_remote(Claim claim) {
    if (is_synced(claim)) {
        count_synced(claim);
        return;
    }

    const auto &remote = remote_of(claim);
    keep_warm({&claim, 1}, ngx_current_msec);

    /* The request does not wait for the reply. */
    if (remote.asked_limit != 0) { claim.limit = remote.asked_limit; }

    ask_redis({&claim, 1}, nullptr);
}

void record_remote(Claim &claim) {
    auto &remote = remote_of(claim);

    /* A blocked key counts nothing. */
    if (remote.source == Source::kLocal || (claim.verdict != nullptr && claim.limit == 0)) {
        return;
    }

    if (remote.source == Source::kFallback) {
        if (claim.verdict == nullptr) { record_rejected(&claim, ngx_current_msec); }
        return;
    }

    /* This node's memory also records the rejection: it has all units that this node has rejected,
     * and the verdict of Redis has the units of other nodes as of the last reply. */
    auto local = as_local(claim);
    local.state = 0;
    local.rejection = {};
    record_rejected(&local, ngx_current_msec);
    if (remote.source != Source::kCache) { return; }

    const auto verdict = local.describe(ngx_current_msec);
    if (local.limit == claim.limit && local.cost == claim.cost) {
        remote.verdict.reset_ms = std::max(remote.verdict.reset_ms, verdict.reset_ms);
        remote.verdict.retry_after_ms
            = std::max(remote.verdict.retry_after_ms, verdict.retry_after_ms);
    }

    /* Redis was not asked: it now records the rejected cost, and the request does not wait. */
    auto asked = claim;
    asked.verdict = nullptr;
    asked.limit = remote.asked_limit;
    ask_redis({&asked, 1}, nullptr);
}

void settle_remote(const Claim &claim, uint64_t reserved, uint64_t cost, uint64_t admitted_ms) {
    if (is_synced(claim)) {
        settle_synced(claim, reserved, cost, admitted_ms);
        return;
    }

    if (remote_of(claim).own.is_unlimited()) { return; }

    /* This node's memory decides while Redis does not answer, so it is settled as well.  It has
     * reserved nothing if on_error=allow has admitted the claim. */
    const auto here = is_fallback(claim) ? 0 : reserved;
    const auto local = as_local(claim);

    if (cost > here) {
        charge(local, cost - here, ngx_current_msec);
    } else if (claim.verdict == nullptr) {
        refund(local, here - cost, admitted_ms, ngx_current_msec);
    } else if (admitted_ms + claim.policy->window_ms > ngx_current_msec) {
        give_back(local, here - cost, ngx_current_msec);
    }

    const auto there = remote_of(claim).source == Source::kFallback ? 0 : reserved;
    if (cost != there) { settle_redis(claim, static_cast<int64_t>(cost - there)); }
}

} // namespace limit_sliding
