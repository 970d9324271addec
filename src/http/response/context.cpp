/* Copyright (C) the limit_sliding authors */

#include "http/response/context.hpp"

#include <algorithm>

namespace limit_sliding {

Context *extend_ctx(ngx_http_request_t *r, Holder &holder, ngx_uint_t nclaims) {
    const auto &old = *get_ctx(holder);
    auto *ctx = create_ctx(r, holder, old.nclaims + nclaims);
    if (ctx == nullptr) { return nullptr; }

    ctx->wait = old.wait;
    if (old.nclaims > 0) {
        ctx->status = old.status;
        ctx->nclaims = old.nclaims;
        ctx->headers = old.headers;
        ctx->now_ms = old.now_ms;
        ctx->extended = true;
        ctx->before_ms = old.first_ms();
        ctx->described = ctx->claims + (old.described - old.claims);
        std::copy_n(old.claims, old.nclaims, ctx->claims);
    }

    return ctx;
}

} // namespace limit_sliding
