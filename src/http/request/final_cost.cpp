/* Copyright (C) the limit_sliding authors */

#include <algorithm>

#include "core/limiter/limiter.hpp"
#include "http/module.h"
#include "http/request/remote_claims.hpp"
#include "http/response/context.hpp"
#include "http/response/log.hpp"
#include "http/values/rates_and_costs.hpp"

namespace limit_sliding {
namespace {

bool is_counted(const Limit &limit, ngx_uint_t status) {
    return std::any_of(limit.count_status.begin(), limit.count_status.end(),
                       [=](auto &range) { return status >= range.from && status <= range.to; });
}

/* Returns false if the client gets no response, because the client has left before.  Such a request
 * counts, so that clients that leave get no free guesses.  A "100 Continue" is sent before the
 * header, and a header may never leave NGINX's buffers. */
bool has_begun(const ngx_http_request_t *r) { return r->header_sent && r->connection->sent != 0; }

/* Evaluates the final cost of the request.  Returns false if the value is empty or invalid. */
[[gnu::always_inline]] inline bool evaluate_settle(ngx_http_request_t *r, const Limit &limit,
                                                   uint64_t &cost) {
    ngx_str_t text;
    if (get_text(r, limit.settle, &text) != NGX_OK || text.len == 0) { return false; }

    const bool is_valid = parse_settled(text, cost);
    if (!is_valid) { log_bad_value(r, *limit.zone, "settle", text); }

    return is_valid;
}

/* Consumes the cost of a request that reserved nothing, if the limit has room. */
void count(Claim claim) {
    claim.purpose = Purpose::kConsume;

    if (kHasRedis && claim.remote != nullptr) {
        count_remote(claim);
    } else {
        acquire(&claim, 1, ngx_current_msec);
    }
}

/* Replaces the reserved cost of the claim by the final cost of the request. */
[[gnu::always_inline]] inline void settle(const Context &ctx, const Claim &claim, uint64_t reserved,
                                          uint64_t cost) {
    const auto now_ms = ngx_current_msec;

    if (kHasRedis && claim.remote != nullptr) {
        settle_remote(claim, reserved, cost, ctx.first_ms());
    } else if (cost > reserved) {
        auto *consume = claim.is_own ? consume_by_history(*claim.policy, claim.limit)
                                     : limit_of(claim).consume;
        charge(consume, claim, cost - reserved, now_ms);
    } else if (cost < reserved) {
        refund(claim, reserved - cost, ctx.first_ms(), now_ms);
    }
}

/* Settles a limit with "count_status=". */
[[gnu::noinline]] void settle_status(ngx_http_request_t *r, const Context &ctx, const Claim &claim,
                                     uint64_t reserved) {
    const auto &limit = limit_of(claim);

    /* The variable $status also prefers err_status. */
    const ngx_uint_t status = r->err_status != 0 ? r->err_status : r->headers_out.status;
    const bool is_rejected = ctx.status == Status::kRejected
                             || (limit.dry_run && ctx.status == Status::kRejectedDryRun);
    const bool counts = is_counted(limit, status);
    uint64_t cost = 0;
    if (!is_rejected && (counts || !has_begun(r))) {
        if (limit.settle == nullptr) {
            if (reserved == 0) { count(claim); }
            return;
        }

        if (!counts || !evaluate_settle(r, limit, cost)) { return; }
    }

    settle(ctx, claim, reserved, cost);
}

/* Settles all claims.  The function is not inlined, so that requests without settled limits do not
 * pay for its registers. */
[[gnu::noinline]] void settle_all(ngx_http_request_t *r, Context &ctx) {
    for (auto &claim : ctx.decided()) {
        const auto &limit = limit_of(claim);
        if (!limit.settles || !is_admitted(claim) || claim.is_void) { continue; }

        const auto reserved = claim.purpose == Purpose::kConsume ? claim.cost : 0;
        if (!limit.count_status.empty()) {
            settle_status(r, ctx, claim, reserved);
            continue;
        }

        uint64_t cost;
        if (evaluate_settle(r, limit, cost)) { settle(ctx, claim, reserved, cost); }
    }
}

} // namespace

extern "C" ngx_int_t ngx_http_limit_sliding_settle(ngx_http_request_t *r) {
    if (r != r->main) { return NGX_OK; }

    if (auto *ctx = get_ctx(r); ctx != nullptr) {
        for (auto &claim : ctx->decided()) {
            if (limit_of(claim).settles) {
                settle_all(r, *ctx);
                break;
            }
        }
    }

    return NGX_OK;
}

} // namespace limit_sliding
