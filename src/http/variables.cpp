/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/variables.hpp"

#include "http/client_address.hpp"
#include "http/context.hpp"
#include "ngx/pool.hpp"

namespace limit_sliding {

ngx_str_t source_names[]
    = {ngx_string("local"), ngx_string("redis"), ngx_string("lease"),
       ngx_string("cache"), ngx_string("fallback")};

namespace {

/* by Status */
const ngx_str_t status_names[] = {
    ngx_string("PASSED"), ngx_string("DELAYED_DRY_RUN"), ngx_string("DELAYED"),
    ngx_string("REJECTED_DRY_RUN"), ngx_string("REJECTED")};

void set_text(ngx_http_variable_value_t *v, const ngx_str_t &text)
{
    v->len = text.len;
    v->data = text.data;
}

/* The context if some limit was accounted, else nullptr and *v is not found. */
Context *variable_ctx(ngx_http_request_t *r, ngx_http_variable_value_t *v)
{
    auto *ctx = get_ctx(r);

    if (ctx == nullptr || ctx->nclaims == 0) {
        v->not_found = 1;
        return nullptr;
    }

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    return ctx;
}

ngx_int_t status_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
                          uintptr_t)
{
    if (auto *ctx = variable_ctx(r, v)) {
        set_text(v, status_names[index_of(ctx->status)]);
    }

    return NGX_OK;
}

ngx_int_t zone_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
                        uintptr_t)
{
    if (auto *ctx = variable_ctx(r, v)) {
        set_text(v, static_cast<Limit *>(ctx->described->data)->zone->name);
    }

    return NGX_OK;
}

ngx_int_t source_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
                          uintptr_t)
{
    if (auto *ctx = variable_ctx(r, v)) {
        auto *remote = static_cast<RemoteClaim *>(ctx->described->remote);
        auto source = remote != nullptr ? remote->source : Source::kLocal;
        set_text(v, source_names[index_of(source)]);
    }

    return NGX_OK;
}

template <uint64_t (*kNumber)(const Verdict &)>
ngx_int_t number_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
                          uintptr_t)
{
    auto *ctx = variable_ctx(r, v);
    if (ctx == nullptr) {
        return NGX_OK;
    }

    Verdict verdict;
    claim_describe(ctx->described, ctx->now_ms, &verdict);

    v->data = alloc_bytes(r->pool, NGX_INT64_LEN);
    if (v->data == nullptr) {
        return NGX_ERROR;
    }

    v->len = ngx_sprintf(v->data, "%uL", kNumber(verdict)) - v->data;
    return NGX_OK;
}

uint64_t limit_of(const Verdict &verdict)
{
    return verdict.limit;
}

uint64_t remaining_of(const Verdict &verdict)
{
    return verdict.remaining;
}

uint64_t reset_of(const Verdict &verdict)
{
    return seconds(verdict.reset_ms);
}

struct Variable {
    ngx_str_t name;
    ngx_http_get_variable_pt get;
};

Variable variables[] = {
    {ngx_string("limit_sliding_status"), status_variable},
    {ngx_string("limit_sliding_zone"), zone_variable},
    {ngx_string("limit_sliding_limit"), number_variable<limit_of>},
    {ngx_string("limit_sliding_remaining"), number_variable<remaining_of>},
    {ngx_string("limit_sliding_reset"), number_variable<reset_of>},
    {ngx_string("limit_sliding_source"), source_variable},
    {ngx_string("limit_sliding_client"), client_variable},
};

} // namespace

ngx_int_t add_variables(ngx_conf_t *cf)
{
    for (auto &variable : variables) {
        auto *added = ngx_http_add_variable(cf, &variable.name,
                                            NGX_HTTP_VAR_NOCACHEABLE);
        if (added == nullptr) {
            return NGX_ERROR;
        }

        added->get_handler = variable.get;
    }

    return NGX_OK;
}

} // namespace limit_sliding
