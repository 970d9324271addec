/* Copyright (C) the limit_sliding authors */

#include "http/response/variables.hpp"

#include "http/conf/client_address.hpp"
#include "http/response/context.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {
/* Texts by Status. */
constexpr std::string_view kStatusNames[]
    = {"PASSED", "DELAYED_DRY_RUN", "DELAYED", "REJECTED_DRY_RUN", "REJECTED"};

std::string_view status_of(const Context &ctx) { return kStatusNames[index_of(ctx.status)]; }

std::string_view zone_of(const Context &ctx) { return view(limit_of(*ctx.described).zone->name); }

std::string_view source_of(const Context &ctx) {
    auto &claim = *ctx.described;
    return kSourceNames[index_of(claim.remote != nullptr ? remote_of(claim).source
                                                         : Source::kLocal)];
}

struct Numbers {
    static uint64_t limit(const Verdict &v) { return v.limit; }
    static uint64_t remaining(const Verdict &v) { return v.remaining; }
    static uint64_t reset(const Verdict &v) { return seconds(v.reset_ms); }
};

/* Returns the context.  Returns nullptr, and makes *v not found, if no limit was decided. */
Context *variable_ctx(ngx_http_request_t *r, ngx_http_variable_value_t *v) {
    auto *ctx = get_ctx(r);
    bool found = ctx != nullptr && ctx->nclaims != 0;

    v->valid = found;
    v->no_cacheable = 0;
    v->not_found = !found;
    return found ? ctx : nullptr;
}

template <std::string_view (*kText)(const Context &)>
ngx_int_t text_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t) {
    if (auto *ctx = variable_ctx(r, v)) {
        v->len = kText(*ctx).size();
        v->data = bytes(kText(*ctx));
    }

    return NGX_OK;
}

template <uint64_t (*kNumber)(const Verdict &)>
ngx_int_t number_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t) {
    auto *ctx = variable_ctx(r, v);
    if (ctx == nullptr) { return NGX_OK; }

    /* nobody knows when a request in flight will end */
    if (kNumber == Numbers::reset && ctx->described->policy->is_in_flight()) {
        v->not_found = 1;
        return NGX_OK;
    }

    const auto verdict = ctx->described->describe(ctx->now_ms);

    v->data = alloc_bytes(r->pool, NGX_INT64_LEN);
    if (v->data == nullptr) { return NGX_ERROR; }

    v->len = ngx_sprintf(v->data, "%uL", kNumber(verdict)) - v->data;
    return NGX_OK;
}

struct Variable {
    ngx_str_t name;
    ngx_http_get_variable_pt get;
};

Variable variables[] = {
    {ngx_string("limit_sliding_status"), text_variable<status_of>},
    {ngx_string("limit_sliding_zone"), text_variable<zone_of>},
    {ngx_string("limit_sliding_limit"), number_variable<Numbers::limit>},
    {ngx_string("limit_sliding_remaining"), number_variable<Numbers::remaining>},
    {ngx_string("limit_sliding_reset"), number_variable<Numbers::reset>},
    {ngx_string("limit_sliding_source"), text_variable<source_of>},
    {ngx_string("limit_sliding_client"), client_variable},
};

} // namespace

ngx_int_t add_holder(ngx_conf_t *cf, const char *text) {
    auto name = to_str(text);
    auto *added = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOHASH);
    if (added == nullptr) { return NGX_ERROR; }

    added->get_handler = [](ngx_http_request_t *, ngx_http_variable_value_t *v, uintptr_t) {
        v->not_found = 1;
        return ngx_int_t{NGX_OK};
    };

    return ngx_http_get_variable_index(cf, &name);
}

bool add_variables(ngx_conf_t *cf) {
    for (auto &variable : variables) {
        auto *added = ngx_http_add_variable(cf, &variable.name, NGX_HTTP_VAR_NOCACHEABLE);
        if (added == nullptr) { return false; }

        added->get_handler = variable.get;
    }

    auto &index = main_conf(cf).context_index;
    index = add_holder(cf, "limit_sliding context");
    return index != NGX_ERROR;
}

} // namespace limit_sliding
