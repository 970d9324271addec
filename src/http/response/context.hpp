/* Copyright (C) the limit_sliding authors */

/* The decisions about a request.  They live as long as the request. */

#pragma once

#include "core/limiter/limiter.hpp"
#include "http/conf/configuration.hpp"
#include "ngx/containers.hpp"
#include "ngx/memory.hpp"
#include "ngx/ngx.hpp"
#include "redis/errands/remote_claim.hpp"

namespace limit_sliding {

/* In ascending order: the status of a request is the highest status of its limits. */
enum class Status : uint8_t { kPassed = 0, kDelayedDryRun, kDelayed, kRejectedDryRun, kRejected };

/* The decision about the limits of a group. */
enum class Decision {
    kNone, /* no limit applied */
    kAdmitted,
    kRejected,
    kAsked, /* undecided: the request waits for Redis */
    kFailed /* there is no memory, or a variable failed */
};

struct RemoteWait;

inline Limit &limit_of(const Claim &claim) { return *static_cast<Limit *>(claim.directive); }

/* Returns true if on_error decided the claim because Redis did not answer.  Returns false if
 * on_error=local left the claim to this node's memory: such a rejection may start a ban. */
inline bool is_fallback(const Claim &claim) {
    return claim.remote != nullptr && !claim.is_here() && claim.standing != Standing::kBanned
           && remote_of(claim).source == Source::kFallback;
}

/* Number of digits of UINT64_MAX ms in seconds. */
constexpr size_t kSecondsDigits = 17;

/* The state of a request.  Each limit is decided once, even if the request is redirected, so
 * redirects must keep the context (see holder_of_ctx()). */
struct Context {
    Status status;
    uint8_t headers;                    /* LocConf::headers of the deciding location */
    bool extended : 1;                  /* later decisions have been added; before_ms is set */
    bool has_fields : 1;                /* the response may have our header fields */
    u_char retry_after[kSecondsDigits]; /* room for the digits of Retry-After */
    uint32_t nclaims; /* decided claims; 0: none, and of the fields below only `wait` is set */
    uint64_t now_ms;
    uint64_t before_ms; /* time of the first decision, in ms of NGINX's clock */
    RemoteWait *wait;   /* nullptr: the request has not waited for Redis */
    Claim *described;   /* the claim that log, headers and variables describe */
    Claim claims[1];    /* the decided claims, and room for the next ones */

    Span<Claim> decided() { return {claims, nclaims}; }

    /* Returns the time of the first decision. */
    uint64_t first_ms() const { return extended ? before_ms : now_ms; }

    /* Returns the first claim that is not decided yet. */
    Claim *next() { return claims + nclaims; }

    /* Adds claims that were decided together; the i-th one describes them.  The request is
     * described by a claim that rejected, or else by the claim with the least share remaining. */
    Decision add_decided(Span<Claim> joint, size_t i) {
        auto *claim = &joint[i];
        nclaims += joint.size();

        if (joint.begin() == claims || !is_admitted(*claim)) {
            described = claim;
        } else if (is_admitted(*described)) {
            described = &claims[tightest(claims, nclaims, now_ms)];
        }

        return is_admitted(*claim) ? Decision::kAdmitted : Decision::kRejected;
    }
};

/* Adds 1 to a counter, which two workers may share (see take_statistics()). */
inline void add_atomically(uint64_t &counter) {
    (void)ngx_atomic_fetch_add(reinterpret_cast<ngx_atomic_t *>(&counter), 1);
}

inline void count_request(const ZoneConf &zone, Count count) {
    add_atomically(zone.worker.counters->requests[count]);
}

/* Counts the source of a decision, of a claim in Redis that this node's memory has not decided. */
inline void count_source(const ZoneConf &zone, const Claim &claim) {
    const size_t source = claim.remote != nullptr ? index_of(remote_of(claim).source) : 0;
    if (source != 0) { add_atomically(zone.worker.counters->sources[source - 1]); }
}

/* Holds a request's context, as the data of a variable: redirects clear only r->ctx. */
using Holder = u_char *;

inline Holder &holder_of_ctx(ngx_http_request_t *r) {
    return r->main->variables[main_conf(r).context_index].data;
}

/* Returns the context, or nullptr if nothing was decided for the request yet. */
inline Context *get_ctx(Holder holder) { return reinterpret_cast<Context *>(holder); }
inline Context *get_ctx(ngx_http_request_t *r) { return get_ctx(holder_of_ctx(r)); }

/* Gives the holder a new context with room for `nclaims` claims.  Returns nullptr if out of
 * memory.  The function is inline because a call would cost as much. */
[[gnu::always_inline]] inline Context *create_ctx(ngx_http_request_t *r, Holder &holder,
                                                  ngx_uint_t nclaims) {
    auto *ctx = static_cast<Context *>(
        alloc_inline(r->pool, offsetof(Context, claims) + nclaims * sizeof(Claim)));
    if (ctx == nullptr) { return nullptr; }

    ctx->status = Status::kPassed;
    ctx->headers = 0;
    ctx->extended = false;
    ctx->has_fields = false;
    ctx->nclaims = 0;
    ctx->wait = nullptr;

    holder = reinterpret_cast<Holder>(ctx);
    return ctx;
}

} // namespace limit_sliding
