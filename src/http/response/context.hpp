/* Copyright (C) the limit_sliding authors */

/* Decisions about a request, kept as long as it lives. */

#pragma once

#include "core/limiter/limiter.hpp"
#include "http/conf/configuration.hpp"
#include "ngx/array.hpp"
#include "ngx/memory.hpp"
#include "ngx/ngx.hpp"
#include "redis/calls/remote_claim.hpp"

namespace limit_sliding {

/* The order matters: the highest status of a request's limits prevails. */
enum class Status : uint8_t { kPassed = 0, kDelayedDryRun, kDelayed, kRejectedDryRun, kRejected };

/* How the limits of a group were decided. */
enum class Decision {
    kNone, /* no limit is accounted */
    kAdmitted,
    kRejected,
    kAsked, /* not yet: the request waits for a Redis */
    kFailed /* memory is exhausted, or a variable failed */
};

struct RemoteWait;

inline Limit &limit_of(const Claim &claim) { return *static_cast<Limit *>(claim.directive); }

/* Tells whether on_error decided the claim, as Redis did not answer.  A ban may begin with
 * what our own memory has rejected then. */
inline bool is_fallback(const Claim &claim) {
    return claim.remote != nullptr && claim.verdict != nullptr && !claim.is_banned
           && remote_of(claim).source == Source::kFallback;
}

/* Every limit is decided once, however often the request is redirected, so this is
 * kept where redirects leave it, see holder_of_ctx(). */
struct Context {
    Status status;
    uint8_t headers;  /* those of the place where it was decided */
    bool extended;    /* by later decisions; then before_ms is set */
    uint32_t nclaims; /* 0: nothing is accounted, and the rest is not set */
    uint64_t now_ms;
    uint64_t before_ms;                /* of the first decision */
    RemoteWait *wait;                  /* nullptr: it has not waited for a Redis so far */
    Claim *described;                  /* the one that the log, headers and variables describe */
    u_char retry_after[NGX_INT64_LEN]; /* room for the digits of the field */
    Claim claims[1];                   /* nclaims, and room for those that are being decided */

    Span<Claim> decided() { return {claims, nclaims}; }

    /* Returns the time of the first decision. */
    uint64_t first_ms() const { return extended ? before_ms : now_ms; }

    /* Returns the first of the claims that are being decided. */
    Claim *next() { return claims + nclaims; }

    /* Accounts the next claims, which were decided together and are described
     * by the i-th of them.  Among all claims of a request, one that rejected is
     * described, else the tightest. */
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

/* Two workers may share the counters, see take_counters(). */
inline void add_atomically(uint64_t &counter) {
    (void)ngx_atomic_fetch_add(reinterpret_cast<ngx_atomic_t *>(&counter), 1);
}

inline void used_units(const ZoneConf &zone, Count count) {
    add_atomically(zone.worker.counters->requests[count]);
}

/* A request's context is the data of a variable of our own, which has no other use:
 * redirects clear r->ctx, but no variables. */
using Holder = u_char *;

inline Holder &holder_of_ctx(ngx_http_request_t *r) {
    return r->main->variables[main_conf(r).context_index].data;
}

/* Returns nullptr if nothing was decided for the request yet. */
inline Context *get_ctx(Holder holder) { return reinterpret_cast<Context *>(holder); }
inline Context *get_ctx(ngx_http_request_t *r) { return get_ctx(holder_of_ctx(r)); }

/* Gives the holder a new context; returns nullptr if memory is exhausted.  A call
 * would cost as much. */
[[gnu::always_inline]] inline Context *create_ctx(ngx_http_request_t *r, Holder &holder,
                                                  ngx_uint_t nclaims) {
    auto *ctx = static_cast<Context *>(
        alloc_inline(r->pool, offsetof(Context, claims) + nclaims * sizeof(Claim)));
    if (ctx == nullptr) { return nullptr; }

    ctx->status = Status::kPassed;
    ctx->headers = 0;
    ctx->extended = false;
    ctx->nclaims = 0;
    ctx->wait = nullptr;

    holder = reinterpret_cast<Holder>(ctx);
    return ctx;
}

/* Replaces the holder's context by one with room for so many more claims; returns
 * nullptr if memory is exhausted. */
Context *extend_ctx(ngx_http_request_t *r, Holder &holder, ngx_uint_t nclaims);

} // namespace limit_sliding
