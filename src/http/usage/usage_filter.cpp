/* Copyright (C) the limit_sliding authors */

/* The body filter that reads the usage of requests from responses. */

#include "http/module.h"
#include "http/response/context.hpp"
#include "http/response/log.hpp"
#include "http/response/variables.hpp"
#include "http/usage/usage_scanner.hpp"
#include "http/values/parameter.hpp"
#include "ngx/conf.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* The context of a request while its response is read.  A redirect drops both. */
struct UsageContext {
    explicit UsageContext(const UsageName &name) : scanner(name) {}

    UsageScanner scanner;
    bool logged = false;
};

/* Returns the context, or nullptr if the response is not read. */
UsageContext *get_usage(ngx_http_request_t *r) {
    return static_cast<UsageContext *>(
        ngx_http_get_module_ctx(r, ngx_http_limit_sliding_usage_filter_module));
}

/* Returns the pointer to the context in a variable, which survives a "post_action". */
u_char *&holder_of_usage(ngx_http_request_t *r) {
    return r->variables[main_conf(r).usage_index].data;
}

bool is_encoded(ngx_http_request_t *r) {
    const auto *encoding = r->headers_out.content_encoding;
    return encoding != nullptr && encoding->value.len != 0
           && !is_same_name(view(encoding->value), "identity");
}

/* Tells of a complete response without the name, if the request stays charged with what it has
 * reserved. */
[[gnu::noinline]] void tell_missing(ngx_http_request_t *r) {
    auto *ctx = get_ctx(r);
    const auto &out = r->headers_out;
    if (ctx == nullptr || ctx->status == Status::kRejected || out.status / 100 != 2
        || out.content_length_n == 0 || r->header_only) {
        return;
    }

    bool settles = false;
    for (auto &claim : ctx->decided()) {
        const auto &limit = limit_of(claim);
        if (limit.settle != nullptr && is_admitted(claim) && !claim.is_void) {
            add_atomically(*limit.zone->memory.aside.usage_missing);
            settles = true;
        }
    }

    if (settles) { log_missing_usage(r, loc_conf(r).usage->name(), loc_conf(r).missing_usage); }
}

/* Reads the buffers of a chain.  They come from the copy filter, so each arrives only once. */
[[gnu::noinline]] ngx_int_t read(ngx_http_request_t *r, ngx_chain_t *in, UsageContext &usage) {
    for (auto *link = in; link != nullptr; link = link->next) {
        const auto &buf = *link->buf;
        if (ngx_buf_in_memory(&buf)) {
            const auto text = view(buf.pos, buf.last - buf.pos);
            usage.scanner.feed(text.data(), text.data() + text.size());
        }

        if (buf.last_buf) {
            usage.scanner.finish();
            if (!usage.scanner.value() && !usage.scanner.has_bad()) { tell_missing(r); }
        }
    }

    if (usage.scanner.has_bad() && !usage.logged) {
        usage.logged = true;
        log_bad_usage(r, loc_conf(r).usage->name(), usage.scanner.shown(),
                      usage.scanner.is_clipped());
    }

    return ngx_http_limit_sliding_usage_next_body_filter(r, in);
}

/* Evaluates $limit_sliding_usage, which is not found until the response has an integer. */
ngx_int_t usage_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t) {
    const auto *usage = get_usage(r->main);
    if (r->main->post_action && main_conf(r).usage_index != NGX_ERROR) {
        usage = reinterpret_cast<UsageContext *>(holder_of_usage(r->main));
    }

    const auto value = usage != nullptr ? usage->scanner.value() : std::nullopt;

    v->valid = value.has_value();
    v->no_cacheable = 0;
    v->not_found = !value;
    if (!value) { return NGX_OK; }

    v->data = alloc_bytes(r->pool, NGX_INT64_LEN);
    if (v->data == nullptr) { return NGX_ERROR; }

    v->len = ngx_sprintf(v->data, "%uL", *value) - v->data;
    return NGX_OK;
}

} // namespace

extern "C" {

/* Starts to read the response, unless its body is compressed, or it is the response of a
 * "post_action", which no client gets. */
ngx_int_t ngx_http_limit_sliding_usage_header_filter(ngx_http_request_t *r) {
    const auto *name = loc_conf(r).usage;
    if (name == nullptr || r != r->main || is_encoded(r) || r->post_action) {
        return ngx_http_limit_sliding_usage_next_header_filter(r);
    }

    void *place = alloc<UsageContext>(r->pool);
    if (place == nullptr) { return NGX_ERROR; }

    auto *usage = new (place) UsageContext(*name);
    ngx_http_set_ctx(r, usage, ngx_http_limit_sliding_usage_filter_module);
    holder_of_usage(r) = static_cast<u_char *>(place);
    r->filter_need_in_memory = 1;

    return ngx_http_limit_sliding_usage_next_header_filter(r);
}

/* Costs one test for a response that is not read. */
ngx_int_t ngx_http_limit_sliding_usage_body_filter(ngx_http_request_t *r, ngx_chain_t *in) {
    auto *usage = get_usage(r);
    return usage == nullptr ? ngx_http_limit_sliding_usage_next_body_filter(r, in)
                            : read(r, in, *usage);
}

char *ngx_http_limit_sliding_usage(ngx_conf_t *cf, ngx_command_t *, void *conf) {
    auto &place = *static_cast<LocConf *>(conf);
    if (place.usage != NGX_CONF_UNSET_PTR) { return conf_failed("is duplicate"); }

    auto &word = words_of(cf)[1];
    if (view(word) == "off") {
        place.usage = nullptr;
        return NGX_CONF_OK;
    }

    if (!UsageName::is_valid(view(word))) {
        return conf_error(cf,
                          "invalid name \"%V\", it must have 1 to %uz bytes, "
                          "without quotes and backslashes",
                          &word, UsageName::kMax);
    }

    void *memory = alloc<UsageName>(cf->pool);
    if (memory == nullptr) { return conf_failed(); }

    place.usage = new (memory) UsageName(view(word));
    auto &main = main_conf(cf);
    main.needs |= NGX_HTTP_LIMIT_SLIDING_USAGE;

    /* NGINX clears all variables for each request, so an unused one is not added. */
    auto &index = main.usage_index;
    if (index == NGX_ERROR) { index = add_holder(cf, "limit_sliding usage"); }

    return conf_result(index != NGX_ERROR);
}

ngx_int_t ngx_http_limit_sliding_usage_add_variables(ngx_conf_t *cf) {
    ngx_str_t name = ngx_string("limit_sliding_usage");
    auto *added = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE);
    if (added == nullptr) { return NGX_ERROR; }

    added->get_handler = usage_variable;
    return NGX_OK;
}

} // extern "C"
} // namespace limit_sliding
