/* Copyright (C) the limit_sliding authors */

/* Claims of zones in Redis.  Redis is asked about a request, unless a lease or a refusal decides.
 * In a zone with "sync=", this node decides, and reports to Redis later.  The functions are
 * undefined in builds without hiredis, see kHasRedis. */

#pragma once

#include "http/response/context.hpp"
#include "ngx/containers.hpp"
#include "ngx/ngx.hpp"
#include "redis/errands/remote_claim.hpp"

namespace limit_sliding {

/* Claims that are decided together. */
struct JointClaims {
    /* Returns the claims of this node, and claims of a Redis that does not answer. */
    Span<Claim> local() const { return {all.begin(), nlocal}; }

    /* Returns the claims to ask Redis about, side by side for each Redis. */
    Span<Claim> remote() const { return {all.begin() + nlocal, all.size() - nlocal}; }

    Span<Claim> all; /* the local claims, and behind them the remote claims */
    size_t nlocal;
};

/* The wait of a request for Redis, and the state of the request to continue with. */
struct RemoteWait {
    Waiter waiter;
    ngx_http_request_t *request;
    JointClaims claims;
    const Group *group;  /* limits that the claims belong to */
    ngx_msec_t delay_ms; /* delay by earlier groups */
    bool holds;          /* the request waits for units in flight, and decides other claims later */
};

/* Completes a claim that has its hash, cost and limit by a RemoteClaim: in the caller's memory, or
 * in memory of the request. */
void complete_remote(Claim &claim, ZoneConf &zone, const ngx_str_t &key, RemoteClaim &remote);
ngx_int_t complete_remote(ngx_http_request_t *r, Claim &claim, ZoneConf &zone,
                          const ngx_str_t &key);

/* Decides the next claims of a request, all of one group.  After kAsked, the request waits in
 * ctx.wait, and its handler calls decide_replied() once Redis has replied or failed. */
Decision decide_remote(ngx_http_request_t *r, Context &ctx, Span<Claim> all);

/* Does the same for a group with limits of inflight= in Redis. */
Decision decide_held(ngx_http_request_t *r, Context &ctx, Span<Claim> all);

/* Continues the decision.  May return kAsked again. */
Decision decide_replied(ngx_http_request_t *r, Context &ctx);

/* Decides a claim that belongs to no request, of a zone without "sync=" and inflight=, in the same
 * ways.  Returns false if the waiter will be woken, and end_one() has to decide. */
bool decide_one(Claim &claim, Waiter *waiter);

/* Decides the claim once its waiter is woken. */
void end_one(Claim &claim, WaitResult result);

/* Ends the wait of a request that was redirected before Redis replied, as to a "post_action" when
 * its client left.  The undecided claims give back the units in flight that they hold, because the
 * limits after the redirect are decided anew.  Other units stay consumed, so that clients that
 * leave get no free tries.  Does nothing if the claims of the wait are decided. */
void leave_wait(Context &ctx);

/* Records the cost of a claim that rejected, and then computes its verdict again. */
void record_remote(Claim &claim);

/* Does the same for any decided claim, in Redis or not, if it rejects and its rejection counts. */
inline void record_rejection(Claim &claim, uint64_t now_ms) {
    if (!claim.records || claim.standing == Standing::kBanned
        || claim.outcome != Outcome::kRejected) {
        return;
    }

    if (kHasRedis && claim.remote != nullptr) {
        record_remote(claim);
    } else if (claim.is_here()) {
        record_rejected(&claim, now_ms);
    }
}

/* Consumes the cost of a claim that reserved nothing, if the limit has room. */
void count_remote(Claim claim);

/* Replaces the reserved cost of a claim by the final cost of the request. */
void settle_remote(const Claim &claim, uint64_t reserved, uint64_t cost, uint64_t admitted_ms);

} // namespace limit_sliding
