/* Copyright (C) the limit_sliding authors */

/* Decides requests in NGINX's phases.  src/README.md describes the path of a request. */

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/limiter/limiter.hpp"
#include "core/table/zone.hpp"
#include "http/conf/configuration.hpp"
#include "http/request/limit_claim.hpp"
#include "http/request/penalties.hpp"
#include "http/request/remote_claims.hpp"
#include "http/request/stopwatch.hpp"
#include "http/request/suspend.hpp"
#include "http/request/sync_claims.hpp"
#include "http/response/context.hpp"
#include "http/response/headers.hpp"
#include "http/response/log.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* Decides a claim that the prepared function of its limit does not fit. */
void decide_alone(Claim *claim, uint64_t now_ms) { (void)acquire(claim, 1, now_ms); }

/* Records the rejections of claims, and updates the claim that describes the request. */
[[gnu::noinline]] void record(Context &ctx, Span<Claim> claims) {
    for (auto &claim : claims) {
        record_rejection(claim, ctx.now_ms);
    }

    ctx.described = &claims[describing(claims.begin(), claims.size(), ctx.now_ms)];
}

/* Runs the limits of a stage, group by group.  With kSingle, the request has no earlier decision,
 * and the stage has one limit, which is enforced and in this node's memory.  Nearly all requests
 * are of this kind: the compiler omits the code for other requests, a third of the instructions. */
template <bool kSingle>
class Run {
public:
    Run(ngx_http_request_t *r, const LocConf &conf, Context &ctx) : r_(r), conf_(conf), ctx_(ctx) {}

    ngx_int_t begin(const Group *group) {
        group_ = group;
        return run(false);
    }

    /* Continues with the group that has waited for Redis. */
    ngx_int_t resume(const RemoteWait &wait) {
        group_ = wait.group;
        delay_ms_ = wait.delay_ms;
        return run(true);
    }

private:
    Claim *next() const { return kSingle ? ctx_.claims : ctx_.next(); }
    bool is_dry_run() const { return !kSingle && group_->dry_run; }

    bool is_decided(const ZoneConf *zone) const {
        return std::any_of(ctx_.claims, next(),
                           [&](const Claim &claim) { return limit_of(claim).zone == zone; });
    }

    /* Completes a claim of a zone with bans.  Returns NGX_ERROR also if a ban has answered the
     * request: its status is kRejected then. */
    ngx_int_t guard(const Limit &limit, Claim &claim) const {
        if (limit.rates[0] != nullptr || limit.cost_value != nullptr) {
            const auto rc = evaluate(r_, limit, claim);
            if (rc != NGX_OK) { return rc; }
        }

        const auto rc = find_ban<kSingle>(r_, conf_, ctx_, claim);
        return rc != NGX_DONE ? rc : kSingle ? NGX_ERROR : NGX_OK;
    }

    /* Returns the status of the response if a ban has answered the request, or after an error. */
    ngx_int_t failed() const {
        return kSingle && ctx_.status == Status::kRejected
                   ? static_cast<ngx_int_t>(conf_.status_code)
                   : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* Adapts a prepared claim to its request, and to debts in the zone. */
    [[gnu::always_inline]] ngx_int_t adapt(const Limit &limit, Claim &claim) {
        if (limit.adapts == Limit::kDebts) {
            if (claim.debts->has_any()) { decide_ = decide_alone; }
            return NGX_OK;
        }

        /* the other claims of debts and of values pass here with the comparison above */
        if (limit.adapts > Limit::kDebts && (limit.adapts & Limit::kValues) == 0) {
            return add_hold(limit, claim);
        }

        if (decide_ == nullptr || (claim.debts != nullptr && claim.debts->has_any())) {
            decide_ = decide_alone;
        }

        ngx_int_t rc;
        if (limit.zone->rejected.are_banned()) {
            rc = guard(limit, claim);
        } else {
            if ((limit.adapts & Limit::kHolds) != 0 && add_hold(limit, claim) != NGX_OK) {
                return NGX_ERROR;
            }
            rc = evaluate(r_, limit, claim);
        }

        if (claim.is_own) { decide_ = decide_alone; }

        return rc;
    }

    ngx_int_t add_hold(const Limit &limit, Claim &claim) const {
        claim.hold = create_hold(r_, *limit.zone);
        return claim.hold != nullptr ? NGX_OK : NGX_ERROR;
    }

    /* Makes the claim of a limit.  Returns NGX_DECLINED if the limit does not apply. */
    ngx_int_t fill(const Limit &limit, Claim &claim) {
        auto &zone = *limit.zone;
        ngx_str_t key;
        if (get_text(r_, &zone.key, &key) != NGX_OK) { return NGX_ERROR; }

        if (key.len == 0) { return decline(r_, zone); }

        /* The decision sets the other fields. */
        std::memcpy(&claim, &limit.claim, offsetof(Claim, outcome));
        const auto hash = claim.zone->hash(view(key));
        claim.hash = hash;

        decide_ = limit.decide;
        if (limit.adapts != 0) {
            const auto rc = adapt(limit, claim);
            if (rc != NGX_OK) { return rc; }
        }

        if (kHasRedis && !kSingle && zone.is_remote()) {
            return complete_remote(r_, claim, zone, key);
        }

        Override own;
        if (find_override(zone, hash, &own)) {
            decide_ = decide_alone;
            return apply_own(r_, zone, own, claim);
        }

        return NGX_OK;
    }

    /* Makes claims of the limits of the group that apply and were not decided before a redirect.
     * Returns the number of claims, or NGX_ERROR. */
    ngx_int_t collect(Claim *claims) {
        ngx_int_t n = 0;

        for (const auto &limit : Span(group_->limits, kSingle ? 1 : group_->nlimits)) {
            if (!kSingle && is_decided(limit.zone)) { continue; }

            const auto rc = fill(limit, claims[n]);
            if (rc == NGX_ERROR) { return NGX_ERROR; }

            n += rc == NGX_OK;
        }

        return n;
    }

    /* Decides claims in this node's memory.  Returns the index of the claim that describes the
     * request. */
    size_t decide_here(Span<Claim> claims) const {
        if (!kSingle) { return acquire(claims.begin(), claims.size(), ctx_.now_ms); }

        decide_(claims.begin(), ctx_.now_ms);
        return 0;
    }

    Decision decide() {
        auto *claims = next();
        const auto collected = collect(claims);
        if (collected <= 0) { return collected == 0 ? Decision::kNone : Decision::kFailed; }

        const size_t n = collected;
        ctx_.headers = conf_.headers;
        ctx_.now_ms = ngx_current_msec;

        if (kHasRedis && !kSingle && group_->is_remote) {
            return group_->is_held ? decide_held(r_, ctx_, {claims, n})
                                   : decide_remote(r_, ctx_, {claims, n});
        }

        return ctx_.add_decided({claims, n}, decide_here({claims, n}));
    }

    /* Counts a claim in its zone.  The claim delays the request by delay_ms.  With kSingle, the
     * claim is admitted if the request is. */
    void account(Claim &claim, bool is_request_admitted, uint64_t delay_ms) const {
        if (!kSingle && claim.outcome == Outcome::kUndecided) { return; }

        auto &zone = *limit_of(claim).zone;
        auto count = kCountPassed;
        if (kSingle ? !is_request_admitted : !is_admitted(claim)) {
            count = is_dry_run() ? kCountRejectedDryRun : kCountRejected;

            const auto n
                = zone.rejected.are_watched ? zone.worker.sampler.weight(ngx_current_msec) : 0;
            if (n != 0) { add_rejections(r_, claim, n); }
        } else if (delay_ms > 0) {
            count = is_dry_run() ? kCountDelayedDryRun : kCountDelayed;
        } else if (!kSingle && claim.standing == Standing::kUnlimited) {
            count = kCountUnlimited;
        }

        count_request(zone, count);

        if (!kSingle) { count_source(zone, claim); }
    }

    /* Logs a rejection, and adds Retry-After.  Returns false if there is no memory. */
    bool tell_rejected() const {
        if (is_logged(r_, conf_.log_level)) {
            log_rejected(r_, conf_, *ctx_.described, ctx_.described->describe(ctx_.now_ms));
        }

        if (is_dry_run() || (conf_.headers & kHeaderRetryAfter) == 0) { return true; }

        return add_retry_after(r_, ctx_);
    }

    /* Lets the longest ban describe the request; the ban may have begun with this request. */
    void describe_ban(Claim &claim) const {
        if (claim.standing == Standing::kBanned
            && claim.retry_after_ms(ctx_.now_ms) > ctx_.described->retry_after_ms(ctx_.now_ms)) {
            ctx_.described = &claim;
        }
    }

    /* Makes the earlier claims in dry run void.  The response that follows would not have been
     * made, so its cost says nothing.  Claims with "count_status=" are still refunded. */
    void void_watched() const {
        for (auto &claim : ctx_.decided()) {
            const auto &limit = limit_of(claim);
            claim.is_void |= limit.dry_run && limit.count_status.empty();
        }
    }

    /* Applies a rejection.  Returns NGX_OK in dry run, else the status of the response. */
    ngx_int_t reject(Span<Claim> claims) {
        bool records = false;
        for (auto &claim : claims) {
            account(claim, false, 0);
            records |= claim.records;

            if (!kSingle) {
                claim.is_void = true;
                describe_ban(claim);
            }
        }

        if (records) { record(ctx_, claims); }

        ctx_.status = is_dry_run() ? Status::kRejectedDryRun : Status::kRejected;
        if (!tell_rejected()) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

        if (!is_dry_run()) { return static_cast<ngx_int_t>(conf_.status_code); }

        void_watched();
        return NGX_OK;
    }

    /* Applies an admission: the longest delay of the claims delays the request. */
    void admit(Span<Claim> claims) {
        const Claim *longest = nullptr;
        uint64_t longest_ms = 0;

        for (auto &claim : claims) {
            const auto ms = group_->leaky ? claim.delay_ms(ctx_.now_ms) : 0;
            account(claim, true, ms);

            if (ms > longest_ms) {
                longest = &claim;
                longest_ms = ms;
            }
        }

        if (longest == nullptr) { return; }

        const auto status = is_dry_run() ? Status::kDelayedDryRun : Status::kDelayed;
        ctx_.status = std::max(ctx_.status, status);
        log_delayed(r_, conf_, *longest, ctx_.now_ms);
        delay_ms_ = is_dry_run() ? delay_ms_ : longest_ms;
    }

    /* Runs the present group and the next ones.  `has_waited`: the present group has waited for
     * Redis. */
    ngx_int_t run(bool has_waited) {
        for (; group_ != nullptr; group_ = kSingle ? nullptr : group_->next) {
            auto *claims = next();
            const auto decision = kHasRedis && has_waited ? decide_replied(r_, ctx_) : decide();
            has_waited = false;

            if (decision == Decision::kNone) { continue; }

            if (decision == Decision::kFailed) { return failed(); }

            if (decision == Decision::kAsked) {
                ctx_.wait->group = group_;
                ctx_.wait->delay_ms = delay_ms_;
                return NGX_AGAIN;
            }

            const size_t n = kSingle ? 1 : ctx_.next() - claims;
            const Span<Claim> decided = {claims, n};
            const bool is_admitted = decision == Decision::kAdmitted;
            if (kHasRedis && !kSingle && group_->is_synced) { tell_synced(decided, is_admitted); }

            if (is_admitted) {
                admit(decided);
            } else if (const auto rc = reject(decided); rc != NGX_OK) {
                return rc;
            }
        }

        if (delay_ms_ == 0) { return NGX_DECLINED; }

        /* The handler runs again after the delay. */
        return suspend_for(r_, delay_ms_, &ctx_);
    }

    ngx_http_request_t *r_;
    const LocConf &conf_;
    Context &ctx_;
    const Group *group_ = nullptr;
    ngx_msec_t delay_ms_ = 0;  /* delay of the request by the groups so far */
    Decide *decide_ = nullptr; /* decides the claim of kSingle; set by fill() */
};

/* Runs the only limit of a location, see Run. */
ngx_int_t run_one(ngx_http_request_t *r, const LocConf &conf, const Group *group, Holder &holder) {
    auto *ctx = create_ctx(r, holder, 1);
    return ctx != nullptr ? Run<true>(r, conf, *ctx).begin(group) : NGX_HTTP_INTERNAL_SERVER_ERROR;
}

/* Replaces the context by a copy with room for more claims; nullptr: out of memory. */
[[gnu::noinline]] Context *extend_ctx(ngx_http_request_t *r, Holder &holder, ngx_uint_t nclaims) {
    const auto &old = *get_ctx(holder);
    auto *ctx = create_ctx(r, holder, old.nclaims + nclaims);
    if (ctx == nullptr) { return nullptr; }

    ctx->wait = old.wait;
    if (old.nclaims > 0) {
        ctx->status = old.status;
        ctx->nclaims = old.nclaims;
        ctx->headers = old.headers;
        ctx->has_fields = old.has_fields;
        ctx->now_ms = old.now_ms;
        ctx->extended = true;
        ctx->before_ms = old.first_ms();
        ctx->described = ctx->claims + (old.described - old.claims);
        std::copy_n(old.claims, old.nclaims, ctx->claims);
    }

    return ctx;
}

/* Runs several limits, limits in Redis or in dry run, or limits after an earlier decision. */
[[gnu::noinline]] ngx_int_t run_any(ngx_http_request_t *r, const LocConf &conf, const Group *group,
                                    Holder &holder) {
    auto *ctx = get_ctx(holder);
    if (ctx == nullptr) {
        ctx = create_ctx(r, holder, group->nclaims);
    } else if (ctx->status == Status::kRejected) {
        return NGX_DECLINED;
    } else if (const auto *wait = end_wait(r); wait != nullptr) {
        return wait == ctx->wait ? Run<false>(r, conf, *ctx).resume(*ctx->wait) : NGX_DECLINED;
    } else {
        if (kHasRedis && ctx->wait != nullptr) { leave_wait(*ctx); }
        ctx = extend_ctx(r, holder, group->nclaims);
    }

    return ctx != nullptr ? Run<false>(r, conf, *ctx).begin(group) : NGX_HTTP_INTERNAL_SERVER_ERROR;
}

Stopwatch watch;

/* Continues with the next handler of NGINX's phases. */
ngx_int_t next_handler(ngx_http_request_t *r) {
    r->phase_handler++;
    return NGX_AGAIN;
}

/* Runs the limits of a stage, and returns the result of a phase checker.  NGINX's checker of the
 * access phase would treat a rejection with 401 or 403 as failed authentication, and "satisfy any"
 * lets another module overrule that.  The function is not inlined, so that requests without limits
 * do not pay for its registers. */
[[gnu::noinline]] ngx_int_t run_stage(ngx_http_request_t *r, const LocConf &conf,
                                      const Group *group) {
    auto &holder = holder_of_ctx(r);
    watch.begin(r);

    const auto rc = holder == nullptr && group->single ? run_one(r, conf, group, holder)
                                                       : run_any(r, conf, group, holder);

    watch.end(r, rc);

    if (rc == NGX_DECLINED) { return next_handler(r); }

    if (rc != NGX_AGAIN) { ngx_http_finalize_request(r, rc); }

    return NGX_OK;
}

template <Stage kStage>
ngx_int_t check_stage(ngx_http_request_t *r) {
    const auto &conf = loc_conf(r);
    const Group *group = conf.groups[kStage];
    return group != nullptr && r == r->main ? run_stage(r, conf, group) : next_handler(r);
}

} // namespace

extern "C" ngx_int_t ngx_http_limit_sliding_check_before_auth(ngx_http_request_t *r,
                                                              ngx_http_phase_handler_t *) {
    return check_stage<kBeforeAuth>(r);
}

extern "C" ngx_int_t ngx_http_limit_sliding_check_after_auth(ngx_http_request_t *r,
                                                             ngx_http_phase_handler_t *) {
    return check_stage<kAfterAuth>(r);
}

} // namespace limit_sliding
