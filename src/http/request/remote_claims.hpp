/* Copyright (C) the limit_sliding authors */

/* Claims of zones in Redis.  Redis is asked about each request, unless a lease or a refusal
 * decides, or the zone has "sync=": then this node decides, and reports to Redis later.  The
 * functions are undefined in builds without hiredis, see kHasRedis. */

#pragma once

#include "http/response/context.hpp"
#include "ngx/array.hpp"
#include "ngx/ngx.hpp"
#include "redis/calls/remote_claim.hpp"

namespace limit_sliding {

/* Claims that are decided together: `all` are first the local and then the remote claims. */
struct JointClaims {
    Span<Claim> all;
    Span<Claim> local; /* claims that this node decides, or decides because Redis does not answer */
    Span<Claim> remote; /* claims to ask Redis about, side by side for each Redis */
};

/* The wait of a request for Redis, and the state of the request to continue with. */
struct RemoteWait {
    Waiter waiter;
    ngx_http_request_t *request;
    JointClaims claims;
    const Group *group;
    ngx_msec_t delay_ms; /* delay by the groups before */
};

/* Completes a claim of the zone, once the claim has its hash, cost and limit. */
ngx_int_t complete_remote(ngx_http_request_t *r, Claim &claim, ZoneConf &zone,
                          const ngx_str_t &key);

/* Decides the next claims of a request, all of one group.  After kAsked, the request waits in
 * ctx.wait, and decide_replied() decides once Redis has replied or failed. */
Decision decide_remote(ngx_http_request_t *r, Context &ctx, Span<Claim> all);
Decision decide_replied(ngx_http_request_t *r, Context &ctx);

/* Records the cost of a claim that rejected, and describes the claim as of after that. */
void record_remote(Claim &claim);

/* Consumes the cost of a claim that reserved nothing, if the limit has room. */
void count_remote(Claim claim);

/* Replaces the reserved cost of a claim by the final cost of the request. */
void settle_remote(const Claim &claim, uint64_t reserved, uint64_t cost, uint64_t admitted_ms);

} // namespace limit_sliding
