/* Copyright (C) the limit_sliding authors */

/* Decides groups with limits in Redis.  Leases of all keys, or the known refusal of one key, decide
 * a request at once.  Else the request is suspended until Redis replies.  If Redis does not answer,
 * on_error decides. */

#include "http/request/remote_claims.hpp"

#include <algorithm>
#include <new>

#include "core/limiter/limiter.hpp"
#include "http/conf/configuration.hpp"
#include "http/request/held_claims.hpp"
#include "http/request/suspend.hpp"
#include "http/request/sync_claims.hpp"
#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "redis/decisions/client.hpp"
#include "redis/shared/breaker.hpp"
#include "redis/shared/refusals.hpp"

namespace limit_sliding {
namespace {

/* Adds claims that have their outcomes to the context. */
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

/* Also counts the units that Redis admits in this node's memory, in case Redis fails later. */
void keep_warm(Span<Claim> remotes, uint64_t now_ms) {
    for (const auto &remote : remotes) {
        if (remote.purpose == Purpose::kConsume && remote.standing != Standing::kUnlimited) {
            auto claim = as_local(remote);
            (void)acquire(&claim, 1, now_ms);
        }
    }
}

/* Returns the verdict of a refusal, a reply of Redis that is at most a second old. */
Verdict refused_verdict(const Refusal &refusal, uint64_t now_ms) {
    return verdict_of(refusal.limit, refusal.remaining,
                      std::max(refusal.reset_ms, now_ms) - now_ms);
}

/* Describes a claim that is undecided because another claim rejects: by the last reply about its
 * key, else by this node's count. */
Verdict describe_undecided(Claim &claim, uint64_t now_ms) {
    if (claim.remote != nullptr) {
        const auto &zone = *remote_of(claim).zone;
        know_window(claim);

        Refusal refusal;
        if (zone.refusals->find(refusal_hash(claim), now_ms, &refusal)) {
            return refused_verdict(refusal, now_ms);
        }

        if (apply_known(claim, zone.last_overrides->find(claim.key_hash())) != Terms::kLimited) {
            return *claim.verdict;
        }
    }

    auto look = as_local(claim);
    look.purpose = Purpose::kLook;
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
    if (!remote.zone->refusals->find(refusal_hash(claim), now_ms, &refusal) || refusal.admits()) {
        return false;
    }

    const bool is_blocked = refusal.limit == 0;
    const auto over = claim.cost - std::min(claim.cost, refusal.remaining);
    verdict = refused_verdict(refusal, now_ms);
    verdict.excess = over * 1000;
    verdict.retry_after_ms = refusal.until_ms - now_ms;
    if (is_blocked) {
        verdict = blocked_verdict(claim.cost);
    } else if (verdict.reset_ms == 0) {
        verdict.reset_ms = verdict.retry_after_ms;
    }

    remote.source = Source::kCache;
    decide_remotely(claim, Outcome::kRejected, is_blocked ? Standing::kBlocked : Standing::kGiven);
    return true;
}

/* Rejects a request by the claims that reject.  The open claims become undecided, because Redis is
 * not asked about them. */
Decision refuse(ngx_http_request_t *r, Context &ctx, Span<Claim> all, Span<Claim> open) {
    size_t n = all.size();

    for (auto &claim : open) {
        claim.outcome = Outcome::kUndecided;
    }

    /* Undecided claims are described only for header fields of the draft. */
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

        auto *room = claim.remote != nullptr ? &remote_of(claim).verdict : alloc<Verdict>(r->pool);
        if (room == nullptr) { return Decision::kFailed; }

        *room = describe_undecided(claim, ctx.now_ms);
        claim.limit = room->limit;
        claim.decide(Standing::kUnasked, Outcome::kUndecided, *room);
    }

    return account_all(ctx, {all.begin(), n});
}

/* Returns true if a ban, a rate "0" or an override "0" has rejected a claim already. */
bool are_turned_away(Span<Claim> claims) {
    return std::any_of(claims.begin(), claims.end(),
                       [](const Claim &claim) { return !claim.is_here() && !is_admitted(claim); });
}

/* Rejects a request with blocked claims, so that Redis need not be asked about the others. */
Decision refuse_blocked(ngx_http_request_t *r, Context &ctx, Span<Claim> all) {
    for (auto &claim : all) {
        if (claim.remote != nullptr) { remote_of(claim).source = Source::kLocal; }

        if (claim.is_here() || is_admitted(claim)) { claim.outcome = Outcome::kUndecided; }
    }

    return refuse(r, ctx, all, {});
}

/* Decides a request by the claims of this node.  Leases have admitted the claims in Redis. */
Decision decide_by_leases(ngx_http_request_t *r, Context &ctx, const JointClaims &claims) {
    const auto remote = claims.remote();
    if (!acquire_all(claims.local(), ctx.now_ms)) {
        return_leases(remote);
        return refuse(r, ctx, claims.all, claims.remote());
    }

    /* The leases have set the limits in force. */
    describe_leases(remote);
    keep_warm(remote, ctx.now_ms);
    return account_all(ctx, claims.all);
}

/* Decides a claim by on_error, or leaves the claim to this node's memory. */
void decide_unasked(Claim &claim) {
    auto &remote = remote_of(claim);
    auto &verdict = remote.verdict;
    const Override own = remote.zone->last_overrides->find(claim.key_hash());
    remote.source = Source::kFallback;
    if (*remote.zone->on_error == OnError::kLocal) {
        if (apply_known(claim, own) == Terms::kLimited) { claim = as_local(claim); }
        return;
    }

    remote.own = own;
    set_window(claim, own);
    claim.limit = limit_under(own, claim.limit);
    const bool admits = *remote.zone->on_error == OnError::kAllow;
    verdict = verdict_of(claim.limit, admits ? claim.policy->capacity(claim.limit) : 0,
                         admits ? 0 : kBreakerIntervalMs);
    verdict.retry_after_ms = verdict.reset_ms;
    const bool is_unlimited = admits && terms_of(own) == Terms::kUnlimited;
    decide_remotely(claim, admits ? Outcome::kAdmitted : Outcome::kRejected,
                    is_unlimited ? Standing::kUnlimited : Standing::kGiven);
}

/* Decides the claims of each Redis that is known not to answer by on_error, and moves them to the
 * claims of this node.  If they reject the request, no other Redis is asked. */
void decide_away(JointClaims &claims) {
    for (auto &claim : claims.remote()) {
        if (!is_away(*remote_of(claim).zone->redis)) { continue; }

        decide_unasked(claim);
        std::rotate(claims.remote().begin(), &claim, &claim + 1);
        claims.nlocal++;
    }
}

/* Decides the claims without a reply by on_error. */
Decision fall_back(Context &ctx, const JointClaims &claims) {
    ctx.now_ms = ngx_current_msec;

    for (auto &claim : claims.remote()) {
        if (claim.outcome == Outcome::kUndecided) { decide_unasked(claim); }
    }

    if (acquire_all(claims.remote(), ctx.now_ms)) {
        for (auto &claim : claims.remote()) {
            if (remote_of(claim).source != Source::kFallback) {
                keep_warm({&claim, 1}, ctx.now_ms);
            }
        }
    } else {
        release_all(claims.local());
        give_back_granted(claims.remote());
    }

    return account_all(ctx, claims.all);
}

/* Resumes a request after the reply, or the failure, of Redis. */
void end_ask(const RemoteWait &wait) {
    auto *r = wait.request;
    answer(r, &wait, [=] {
        ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0, "limit_sliding replied");
        resume(r);
        return NGX_AGAIN;
    });
}

void write_handler(ngx_http_request_t *r) {
    if (ngx_handle_write_event(r->connection->write, 0) == NGX_OK) { return; }

    (void)end_wait(r);
    ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
}

/* Gives a request its wait, unless it has waited before.  Returns false if there is no memory. */
bool get_wait(ngx_http_request_t *r, Context &ctx) {
    if (ctx.wait != nullptr) { return true; }

    auto *cln = ngx_http_cleanup_add(r, sizeof(RemoteWait));
    if (cln == nullptr) { return false; }

    cln->handler = [](void *data) { leave_ask(&static_cast<RemoteWait *>(data)->waiter); };

    ctx.wait = new (cln->data) RemoteWait();
    ctx.wait->request = r;
    init_event<end_ask>(ctx.wait->waiter.event, *ctx.wait);
    return true;
}

/* Asks Redis about the remote claims, and suspends the request. */
Decision ask(ngx_http_request_t *r, Context &ctx, const JointClaims &claims) {
    auto &wait = *ctx.wait;
    wait.claims = claims;
    if (!ask_redis(claims.remote(), &wait.waiter)) { return fall_back(ctx, claims); }

    /* The client of Redis ends the wait after `timeout`, so the request needs no timer. */
    if (!suspend(r, write_handler, &wait)) {
        leave_ask(&wait.waiter);
        release_all(claims.local());
        return Decision::kFailed;
    }

    /* A reply about a key with "sync=" may arrive during the wait.  It replaces this node's count
     * of the key by the count of Redis and the units to report, so these units are reported now. */
    if (!claims.local().empty()) { tell_synced(claims.local(), true); }

    return Decision::kAsked;
}

/* Decides a request once Redis has replied about its claims, or has failed. */
Decision decide_told(ngx_http_request_t *r, Context &ctx) {
    const auto &claims = ctx.wait->claims;
    const auto result = ctx.wait->waiter.result;
    if (result == WaitResult::kFailed) { return fall_back(ctx, claims); }

    if (result == WaitResult::kRejected) {
        release_all(claims.local());
        return refuse(r, ctx, claims.all, {});
    }

    keep_warm(claims.remote(), ngx_current_msec);
    return account_all(ctx, claims.all);
}

/* Holds the units of claims with inflight= in Redis, one claim after the other, because each may
 * have to wait.  Then decides the other claims. */
Decision decide_all(ngx_http_request_t *r, Context &ctx, Span<Claim> all) {
    for (auto &claim : all) {
        if (!is_held(claim)) { continue; }

        if (!get_wait(r, ctx)) { return Decision::kFailed; }

        auto &wait = *ctx.wait;
        if (claim.is_here() && !hold_units(claim, &wait.waiter)) {
            wait.claims.all = all;
            wait.holds = true;
            return suspend(r, write_handler, &wait) ? Decision::kAsked : Decision::kFailed;
        }

        if (is_admitted(claim)) { continue; }

        for (auto &other : all) {
            if (other.is_here()) { other.outcome = Outcome::kUndecided; }
        }
        return refuse(r, ctx, all, {});
    }

    return decide_remote(r, ctx, all);
}

/* Gives back the units in flight of a request that is not admitted. */
Decision conclude(Span<Claim> all, Decision decision) {
    if (decision == Decision::kRejected || decision == Decision::kFailed) { release_held(all); }

    return decision;
}

} // namespace

/* A reply or a verdict sets the other fields of the RemoteClaim.  Clearing them here would take 130
 * instructions. */
void complete_remote(Claim &claim, ZoneConf &zone, const ngx_str_t &key, RemoteClaim &remote) {
    remote.zone = &zone.remote;
    remote.key = key;
    remote.source = Source::kRedis;
    remote.own = {};
    remote.asked_limit = 0;
    remote.pace = claim.pace();
    remote.asked = claim.policy;
    remote.is_pending = false;
    claim.remote = &remote;
    if (is_synced(claim)) { complete_synced(claim); }
}

ngx_int_t complete_remote(ngx_http_request_t *r, Claim &claim, ZoneConf &zone,
                          const ngx_str_t &key) {
    auto *remote = alloc<RemoteClaim>(r->pool);
    if (remote == nullptr) { return NGX_ERROR; }

    complete_remote(claim, zone, key, *remote);
    return !is_held(claim) || complete_held(r, claim) ? NGX_OK : NGX_ERROR;
}

Decision decide_remote(ngx_http_request_t *r, Context &ctx, Span<Claim> all) {
    auto *first
        = std::find_if(all.begin(), all.end(), [](const Claim &claim) { return is_asked(claim); });
    if (first == all.end()) {
        return ctx.add_decided(all, acquire(all.begin(), all.size(), ctx.now_ms));
    }

    JointClaims claims = {all, static_cast<size_t>(first - all.begin())};

    if (are_turned_away(all)) { return refuse_blocked(r, ctx, all); }

    if (spend_leases(claims.remote())) { return decide_by_leases(r, ctx, claims); }

    bool known = false;
    for (auto &claim : claims.remote()) {
        known |= reject_known(claim, ctx.now_ms);
    }

    if (known) { return refuse(r, ctx, claims.all, claims.local()); }

    decide_away(claims);

    const bool asks = !claims.remote().empty();
    if (asks && !get_wait(r, ctx)) { return Decision::kFailed; }

    if (!acquire_all(claims.local(), ctx.now_ms)) {
        return refuse(r, ctx, claims.all, claims.remote());
    }

    return asks ? ask(r, ctx, claims) : account_all(ctx, claims.all);
}

Decision decide_held(ngx_http_request_t *r, Context &ctx, Span<Claim> all) {
    return conclude(all,
                    are_turned_away(all) ? decide_remote(r, ctx, all) : decide_all(r, ctx, all));
}

Decision decide_replied(ngx_http_request_t *r, Context &ctx) {
    auto &wait = *ctx.wait;
    const auto all = wait.claims.all;
    if (!wait.holds) { return conclude(all, decide_told(r, ctx)); }

    wait.holds = false;
    ctx.now_ms = ngx_current_msec;
    end_hold(wait.waiter.claims[0], wait.waiter.result);

    return conclude(all, decide_all(r, ctx, all));
}

bool decide_one(Claim &claim, Waiter *waiter) {
    const Span one(&claim, 1);
    if (are_turned_away(one)) {
        remote_of(claim).source = Source::kLocal;
        return true;
    }

    if (spend_leases(one)) {
        describe_leases(one);
        keep_warm(one, ngx_current_msec);
        return true;
    }

    if (reject_known(claim, ngx_current_msec)) { return true; }

    if (ask_redis(one, waiter)) { return false; }

    end_one(claim, WaitResult::kFailed);
    return true;
}

void end_one(Claim &claim, WaitResult result) {
    if (result == WaitResult::kFailed) {
        decide_unasked(claim);
        if (claim.is_here()) { (void)acquire(&claim, 1, ngx_current_msec); }
    } else if (result == WaitResult::kAdmitted) {
        keep_warm({&claim, 1}, ngx_current_msec);
    }
}

void leave_wait(Context &ctx) {
    auto &wait = *ctx.wait;
    if (wait.claims.all.begin() != ctx.next()) { return; }

    leave_ask(&wait.waiter);
    release_held(wait.claims.all);
    wait.claims = {};
    wait.holds = false;
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
    if (remote.source == Source::kLocal || claim.standing == Standing::kBlocked) { return; }

    if (remote.source == Source::kFallback) {
        if (claim.is_here()) { record_rejected(&claim, ngx_current_msec); }
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
    asked.standing = Standing::kHere;
    asked.limit = remote.asked_limit;
    ask_redis({&asked, 1}, nullptr);
}

void settle_remote(const Claim &claim, uint64_t reserved, uint64_t cost, uint64_t admitted_ms) {
    if (is_synced(claim)) {
        settle_synced(claim, reserved, cost, admitted_ms);
        return;
    }

    if (claim.standing == Standing::kUnlimited) { return; }

    /* This node's memory decides while Redis does not answer, so it is settled as well.  It has
     * reserved nothing if on_error=allow has admitted the claim. */
    const auto here = is_fallback(claim) ? 0 : reserved;
    const auto local = as_local(claim);

    if (cost > here) {
        charge(local, cost - here, ngx_current_msec);
    } else if (claim.is_here()) {
        refund(local, here - cost, admitted_ms, ngx_current_msec);
    } else if (!is_past(local, admitted_ms, ngx_current_msec)) {
        give_back(local, here - cost, ngx_current_msec);
    }

    const auto there = remote_of(claim).source == Source::kFallback ? 0 : reserved;
    if (cost != there) { settle_redis(claim, static_cast<int64_t>(cost - there)); }
}

} // namespace limit_sliding
