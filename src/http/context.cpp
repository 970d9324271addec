/* Copyright (C) the limit_sliding authors */

#include "http/context.hpp"

#include <algorithm>

namespace limit_sliding {

Context *find_ctx(ngx_http_request_t *r) {
    for (auto *cln = r->pool->cleanup; cln != nullptr; cln = cln->next) {
        if (cln->handler == context_cleanup) {
            ngx_http_set_ctx(r, cln->data, ngx_http_limit_sliding_module);
            return static_cast<Context *>(cln->data);
        }
    }

    return nullptr;
}

Context *extend_ctx(ngx_http_request_t *r, const Context &old, ngx_uint_t nclaims) {
    Context *ctx = create_ctx(r, old.nclaims + nclaims);
    if (ctx == nullptr) { return nullptr; }

    ctx->wait = old.wait;
    if (old.nclaims > 0) {
        ctx->status = old.status;
        ctx->nclaims = old.nclaims;
        ctx->headers = old.headers;
        ctx->now_ms = old.now_ms;
        ctx->described = ctx->claims + (old.described - old.claims);
        std::copy_n(old.claims, old.nclaims, ctx->claims);
    }

    return ctx;
}

void context_cleanup(void *) {}

} // namespace limit_sliding
