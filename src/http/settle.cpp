/* Copyright (C) the limit_sliding authors */

#include "http/settle.hpp"

#include <algorithm>

#include "core/limiter.hpp"
#include "http/configuration.hpp"
#include "http/context.hpp"
#include "http/log.hpp"
#include "http/rate.hpp"
#include "http/remote_claims.hpp"
#include "http/sync_claims.hpp"

namespace limit_sliding {
namespace {

bool is_counted(const Limit &limit, ngx_uint_t status) {
    return std::any_of(limit.count_status.begin(), limit.count_status.end(),
                       [=](auto &range) { return status >= range.from && status <= range.to; });
}

/* Reads what the request turned out to cost; false: the value is empty, or bad. */
[[gnu::always_inline]] inline bool evaluate_settle(ngx_http_request_t *r, const Limit &limit,
                                                   uint64_t &cost) {
    ngx_str_t text;
    if (get_text(r, limit.settle, &text) != NGX_OK || text.len == 0) { return false; }

    const bool is_valid = parse_settled(text, cost);
    if (!is_valid) { log_bad_value(r, *limit.zone, "settle", text); }

    return is_valid;
}

/* Records the cost of a request that reserved nothing, if the limit has room for it. */
void count(Claim claim) {
    claim.purpose = Purpose::kConsume;

    if (is_synced(claim)) {
        count_synced(claim);
    } else if (claim.remote != nullptr) {
        count_remote(claim);
    } else {
        acquire(&claim, 1, ngx_current_msec);
    }
}

/* Replaces what the claim has reserved by what the request has cost. */
[[gnu::always_inline]] inline void settle(const Claim &claim, uint64_t reserved, uint64_t cost,
                                          uint64_t admitted_ms) {
    const auto now_ms = ngx_current_msec;

    if (is_synced(claim)) {
        settle_synced(claim, reserved, cost, admitted_ms);
    } else if (claim.remote != nullptr) {
        settle_remote(claim, reserved, cost, admitted_ms);
    } else if (cost > reserved) {
        const auto &limit = limit_of(claim);
        auto *consume = claim.is_own ? consume_of(*claim.policy, claim.limit) : limit.consume;
        charge(consume, claim, cost - reserved, now_ms);
    } else if (cost < reserved) {
        refund(claim, reserved - cost, admitted_ms, now_ms);
    }
}

/* Settles a limit with "count_status=". */
[[gnu::noinline]] void settle_status(ngx_http_request_t *r, const Context &ctx,
                                     const Claim &claim) {
    const auto &limit = limit_of(claim);

    /* $status prefers the first one, too. */
    const ngx_uint_t status = r->err_status != 0 ? r->err_status : r->headers_out.status;
    const bool is_rejected = ctx.status == Status::kRejected
                             || (limit.dry_run && ctx.status == Status::kRejectedDryRun);
    if (is_rejected || !is_counted(limit, status)) { return; }

    uint64_t cost;
    if (limit.settle != nullptr && evaluate_settle(r, limit, cost)) {
        settle(claim, 0, cost, ctx.first_ms());
    } else if (!claim.is_free) {
        count(claim);
    }
}

/* It is out of line for the sake of requests that have nothing to settle. */
[[gnu::noinline]] void settle_all(ngx_http_request_t *r, Context &ctx) {
    for (auto &claim : ctx.decided()) {
        const auto &limit = limit_of(claim);
        if (!limit.settles || !is_admitted(claim) || claim.is_void) { continue; }

        if (!limit.count_status.empty()) {
            settle_status(r, ctx, claim);
            continue;
        }

        uint64_t cost;
        if (evaluate_settle(r, limit, cost)) {
            settle(claim, claim.purpose == Purpose::kConsume ? claim.cost : 0, cost,
                   ctx.first_ms());
        }
    }
}

} // namespace

ngx_int_t settle_handler(ngx_http_request_t *r) {
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
