/* Copyright (C) the limit_sliding authors */

/* The backends that decide limits in Redis.  The handler decides limits in this node's memory
 * itself: nearly all requests have one such limit, and shall not pay for calls through a table. */

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

struct Backend {
    /* Completes a claim of the zone, once the claim has its hash, cost and limit. */
    ngx_int_t (*complete)(ngx_http_request_t *r, Claim &claim, ZoneConf &zone,
                          const ngx_str_t &key);

    /* Decides the next claims of a request, all of one group.  After kAsked, the request waits in
     * ctx.wait, and resume() decides once Redis has replied or failed. */
    Decision (*decide)(ngx_http_request_t *r, Context &ctx, Span<Claim> all);
    Decision (*resume)(ngx_http_request_t *r, Context &ctx);

    /* Reports claims with "sync=" to Redis once their request is decided. */
    void (*report)(Span<Claim> claims, bool is_admitted);

    /* Records the cost of a claim that rejected, and describes the claim as of after that. */
    void (*record)(Claim &claim);

    /* Consumes the cost of a claim that reserved nothing, if the limit has room. */
    void (*count)(Claim claim);

    /* Replaces the reserved cost of a claim by the final cost of the request. */
    void (*settle)(const Claim &claim, uint64_t reserved, uint64_t cost, uint64_t admitted_ms);

    /* Report to other nodes that a key, by its hash, was banned or that its ban was lifted. */
    void (*tell_ban)(const RemoteZone &zone, uint64_t hash);
    void (*tell_lifted_ban)(const RemoteZone &zone, uint64_t hash);
};

/* Redis is asked about each request, unless a lease or a refusal decides.  Zones with "sync=":
 * this node decides, and Redis is told later.  Undefined in builds without hiredis. */
extern const Backend kAsked;
extern const Backend kTold;

/* Returns the backend of a claim of a zone in Redis. */
inline const Backend &backend_of(const Claim &claim) { return *limit_of(claim).zone->backend; }

} // namespace limit_sliding
