/* Copyright (C) the limit_sliding authors */

#include "http/count_status.hpp"

#include <algorithm>

#include "core/limiter.hpp"
#include "http/context.hpp"
#include "ngx/conf.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* "401" or "4xx" */
bool parse_statuses(std::string_view text, StatusRange &range) {
    if (text.size() != 3 || text[0] < '1' || text[0] > '5') { return false; }

    const bool is_class = text[1] == 'x' && text[2] == 'x';
    const ngx_int_t status = is_class ? (text[0] - '0') * 100 : ngx_atoi(bytes(text), text.size());
    range.from = status;
    range.to = status + (is_class ? 99 : 0);
    return status != NGX_ERROR;
}

} // namespace

/* "count_status=401,5xx" */
bool set_count_status(const Param &param, Limit &limit) {
    auto rest = param.value();
    for (;;) {
        size_t size = ngx_min(rest.find(','), rest.size());
        std::string_view text(rest.data(), size);

        auto *range = limit.count_status.add(param.cf->pool);
        if (range == nullptr) { return false; }

        if (!parse_statuses(text, *range)) {
            ngx_str_t shown = to_str(text);
            return conf_invalid(param.cf,
                                "invalid status \"%V\" in \"%V\", it must be "
                                "between 100 and 599, or as \"4xx\"",
                                &shown, &param.word);
        }

        if (size == rest.size()) { return true; }

        rest.remove_prefix(size + 1);
    }
}

ngx_int_t count_handler(ngx_http_request_t *r) {
    if (r != r->main) { return NGX_OK; }

    auto *ctx = get_ctx(r);
    if (ctx == nullptr || ctx->status == Status::kRejected) { return NGX_OK; }

    /* $status prefers the first one, too. */
    ngx_uint_t status = r->err_status != 0 ? r->err_status : r->headers_out.status;

    for (auto claim : ctx->decided()) {
        const auto &limit = limit_of(claim);
        const bool is_counted
            = std::any_of(limit.count_status.begin(), limit.count_status.end(),
                          [&](auto &range) { return status >= range.from && status <= range.to; });

        /* Limits in dry run would have rejected the request before. */
        if (!is_counted || (limit.dry_run && ctx->status == Status::kRejectedDryRun)) { continue; }

        claim.purpose = Purpose::kConsume;
        claim.verdict = nullptr;

        if (claim.remote == nullptr || remote_of(claim).own != kUnlimited) {
            acquire(&claim, 1, ngx_current_msec);
        }

        /* Nobody waits for the answer. */
        if (claim.remote != nullptr) {
            ask_redis(remote_of(claim).zone->redis, &claim, 1, nullptr);
        }
    }

    return NGX_OK;
}

} // namespace limit_sliding
