/* Copyright (C) the limit_sliding authors */

/* Limits of a request that Redis decides. */

#pragma once

#include "http/response/context.hpp"
#include "ngx/array.hpp"
#include "ngx/ngx.hpp"
#include "redis/calls/client.hpp"

namespace limit_sliding {

/* Claims that are decided together.  The claims of this node come first, and with them
 * the claims of a Redis that is known not to answer. */
struct JointClaims {
    Span<Claim> all;
    Span<Claim> local;
    Span<Claim> remote; /* for Redis; the claims of one Redis are beside each other */
};

/* A request that waits for a Redis, and its state for the time after that. */
struct RemoteWait {
    Waiter waiter;
    ngx_http_request_t *request;
    JointClaims claims;
    const Group *group;
    ngx_msec_t delay_ms; /* by the groups before */
};

/* Makes a claim one that Redis decides. */
ngx_int_t add_remote(ngx_http_request_t *r, Claim &claim, RemoteZone &zone, const ngx_str_t &key);

/* Decides the next claims, of which the last ones are in Redis.  If one was asked,
 * decide_told() goes on once all have answered or failed. */
Decision decide_remote(ngx_http_request_t *r, Context &ctx, Span<Claim> all);
Decision decide_told(ngx_http_request_t *r, Context &ctx);

/* Records the cost of such a claim, which has reserved nothing, if there is room for it. */
void count_remote(Claim claim);

/* Records the cost of such a claim, which has rejected, and described to the client as of
 * after that. */
void record_remote(Claim &claim);

/* Replaces the reserved cost of such a claim by the final cost of the request. */
void settle_remote(const Claim &claim, uint64_t reserved, uint64_t cost, uint64_t admitted_ms);

} // namespace limit_sliding
