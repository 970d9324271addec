/* Copyright (C) the limit_sliding authors */

#include "http/apply.hpp"

#include <algorithm>

#include "http/expression.hpp"
#include "http/headers.hpp"
#include "http/log.hpp"
#include "http/policy_field.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

bool add_retry_after(ngx_http_request_t *r, ngx_uint_t headers, const Context &ctx) {
    if ((headers & kHeaderRetryAfter) == 0) { return true; }

    const auto verdict = ctx.described->describe(ctx.now_ms);

    uint64_t ms = verdict.retry_after_ms;
    if (ms == kNever) { return true; }

    /* A request that only looks may be admitted before anything remains. */
    if ((headers & kHeaderDraft) != 0) { ms = std::max(ms, verdict.reset_ms); }

    auto *p = alloc_bytes(r->pool, NGX_INT64_LEN);
    if (p == nullptr) { return false; }

    ngx_str_t value;
    (void)append_number(p, seconds(ms), &value);
    return push_header(r, kRetryAfter, value);
}

} // namespace

void add_offender(ngx_http_request_t *r, const Claim &claim) {
    auto &zone = *limit_of(claim).zone;
    if (!zone.top) { return; }

    /* Most rejections end here when there are many of them. */
    const auto n = zone.worker.sampler.weight(ngx_current_msec);
    if (n == 0) { return; }

    /* A key that meets a full zone, or no Redis, is not over its limit. */
    if (claim.outcome != Outcome::kRejected || is_fallback(claim)) { return; }

    ngx_str_t key;
    if (claim.remote != nullptr) {
        key = remote_of(claim).key;
    } else if (get_text(r, &zone.key, &key) != NGX_OK) {
        return;
    }

    zone.memory.aside.offenders->add(claim.hash, view(key), n, ngx_current_msec);
}

ngx_int_t reject(ngx_http_request_t *r, const LocConf &conf, Context &ctx) {
    ctx.status = Status::kRejected;
    log_rejected(r, conf, ctx);

    if (!add_retry_after(r, conf.headers, ctx)) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    /* The status is not returned: with "satisfy any" NGINX takes some for the
     * answer of an authentication, which another module may overrule, and its
     * versions differ in which.  A phase finalizes any other status by the
     * same call. */
    ngx_http_finalize_request(r, static_cast<ngx_int_t>(conf.status_code));
    return NGX_DONE;
}

void note_delay(ngx_http_request_t *r, const LocConf &conf, Context &ctx, const Claim &claim) {
    const Status status = limit_of(claim).dry_run ? Status::kDelayedDryRun : Status::kDelayed;

    ctx.status = std::max(ctx.status, status);
    log_delayed(r, conf, claim, ctx.now_ms);
}

} // namespace limit_sliding
