/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/count_status.hpp"
#include "core/limiter.hpp"

#include "http/context.hpp"
#include "ngx/conf.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

namespace {

/* "401" or "4xx" */
bool parse_statuses(std::string_view text, StatusRange &range)
{
    if (text.size() != 3 || text[0] < '1' || text[0] > '5') {
        return false;
    }

    if (text[1] == 'x' && text[2] == 'x') {
        range.from = (text[0] - '0') * 100;
        range.to = range.from + 99;
        return true;
    }

    ngx_int_t status = ngx_atoi(bytes(text), text.size());
    if (status == NGX_ERROR) {
        return false;
    }

    range.from = range.to = status;
    return true;
}

bool is_counted(const Array<StatusRange> &ranges, ngx_uint_t status)
{
    for (auto &range : ranges) {
        if (status >= range.from && status <= range.to) {
            return true;
        }
    }

    return false;
}

} // namespace

/* "count_status=401,5xx" */
bool set_count_status(const Param &param, Limit &limit)
{
    auto rest = param.value();

    for (;;) {
        size_t size = ngx_min(rest.find(','), rest.size());
        std::string_view text(rest.data(), size);

        auto *range = limit.count_status.add(param.cf->pool);
        if (range == nullptr) {
            return false;
        }

        if (!parse_statuses(text, *range)) {
            ngx_str_t shown = to_str(text);
            return conf_invalid(param.cf,
                                "invalid status \"%V\" in \"%V\", it must be "
                                "between 100 and 599, or as \"4xx\"",
                                &shown, &param.word);
        }

        if (size == rest.size()) {
            return true;
        }

        rest.remove_prefix(size + 1);
    }
}

ngx_int_t count_handler(ngx_http_request_t *r)
{
    if (r != r->main) {
        return NGX_OK;
    }

    auto *ctx = get_ctx(r);
    if (ctx == nullptr || ctx->status == Status::kRejected) {
        return NGX_OK;
    }

    /* as $status */
    ngx_uint_t status
        = r->err_status != 0 ? r->err_status : r->headers_out.status;

    for (ngx_uint_t i = 0; i < ctx->nclaims; i++) {
        Claim claim = ctx->claims[i];
        const auto &limit = *static_cast<Limit *>(claim.directive);

        if (!is_counted(limit.count_status, status)) {
            continue;
        }

        if (limit.dry_run && ctx->status == Status::kRejectedDryRun) {
            /* the watched limits would have rejected it */
            continue;
        }

        auto *remote = static_cast<RemoteClaim *>(claim.remote);
        claim.purpose = Purpose::kConsume;
        claim.verdict = nullptr;

        if (remote == nullptr || remote->own != kUnlimited) {
            acquire(&claim, 1, ngx_current_msec);
        }

        if (remote != nullptr) {
            /* nobody waits for it */
            ask_redis(remote->zone->redis, &claim, 1, nullptr);
        }
    }

    return NGX_OK;
}

} // namespace limit_sliding
