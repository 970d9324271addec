/* Copyright (C) the limit_sliding authors */

#include "http/settle.hpp"

#include <algorithm>
#include <optional>

#include "core/limiter.hpp"
#include "http/configuration.hpp"
#include "http/context.hpp"
#include "http/log.hpp"
#include "http/rate.hpp"
#include "http/remote_claims.hpp"
#include "redis/client.hpp"

namespace limit_sliding {
namespace {

bool is_counted(const Limit &limit, ngx_uint_t status) {
    return std::any_of(limit.count_status.begin(), limit.count_status.end(),
                       [=](auto &range) { return status >= range.from && status <= range.to; });
}

/* Returns what the request turned out to cost; nothing: the value is empty, or bad. */
std::optional<uint64_t> evaluate_settle(ngx_http_request_t *r, const Limit &limit) {
    ngx_str_t text;
    if (get_text(r, limit.settle, &text) != NGX_OK || text.len == 0) { return std::nullopt; }

    uint64_t cost;
    if (parse_settled(text, cost)) { return cost; }

    log_bad_value(r, *limit.zone, "settle", text);
    return std::nullopt;
}

/* Records the cost of a request that reserved nothing, if the limit has room for it. */
void count(Claim claim) {
    claim.purpose = Purpose::kConsume;
    claim.verdict = nullptr;

    if (claim.remote == nullptr || remote_of(claim).own != kUnlimited) {
        acquire(&claim, 1, ngx_current_msec);
    }

    /* Nobody waits for the answer. */
    if (claim.remote != nullptr) { ask_redis({&claim, 1}, nullptr); }
}

/* Replaces what the claim has reserved by what the request has cost. */
void settle(const Claim &claim, uint64_t reserved, uint64_t cost, uint64_t admitted_ms) {
    const auto now_ms = ngx_current_msec;

    if (claim.remote != nullptr) {
        settle_remote(claim, reserved, cost);
    } else if (cost > reserved) {
        charge(claim, cost - reserved, now_ms);
    } else if (cost < reserved) {
        refund(claim, reserved - cost, admitted_ms, now_ms);
    }
}

/* Settles a claim that let the request pass. */
void settle_claim(ngx_http_request_t *r, const Context &ctx, const Claim &claim,
                  ngx_uint_t status) {
    const auto &limit = limit_of(claim);
    const bool counts_status = !limit.count_status.empty();

    if (counts_status && (ctx.status == Status::kRejected || !is_counted(limit, status))) {
        return;
    }

    if (limit.settle != nullptr) {
        if (const auto cost = evaluate_settle(r, limit)) {
            settle(claim, claim.purpose == Purpose::kConsume ? claim.cost : 0, *cost, ctx.now_ms);
            return;
        }
    }

    if (counts_status) { count(claim); }
}

/* It is out of line for the sake of requests that have nothing to settle. */
[[gnu::noinline]] void settle_all(ngx_http_request_t *r, Context &ctx) {
    /* $status prefers the first one, too. */
    const ngx_uint_t status = r->err_status != 0 ? r->err_status : r->headers_out.status;

    for (auto &claim : ctx.decided()) {
        if (limit_of(claim).settles && is_admitted(claim) && !claim.is_void) {
            settle_claim(r, ctx, claim, status);
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
