/* Copyright (C) the limit_sliding authors */

#include "http/response/headers.hpp"

#include <algorithm>
#include <initializer_list>

#include "core/limiter/limiter.hpp"
#include "http/conf/configuration.hpp"
#include "http/conf/policy_header.hpp"
#include "http/response/context.hpp"
#include "ngx/containers.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

constexpr std::string_view kRetryAfter = "Retry-After";
constexpr std::string_view kPolicy = "RateLimit-Policy";
constexpr std::string_view kState = "RateLimit";
constexpr std::string_view kXLimit = "X-RateLimit-Limit";
constexpr std::string_view kXRemaining = "X-RateLimit-Remaining";
constexpr std::string_view kXReset = "X-RateLimit-Reset";

void set_header(ngx_table_elt_t &h, std::string_view name, ngx_str_t value) {
    h.hash = 1;
#if (nginx_version >= 1023000)
    h.next = nullptr;
#endif
    h.key = to_str(name);
    h.value = value;
}

[[gnu::noinline]] bool push_slowly(ngx_list_t &list, std::string_view name, ngx_str_t value) {
    auto *h = static_cast<ngx_table_elt_t *>(ngx_list_push(&list));
    if (h == nullptr) { return false; }

    set_header(*h, name, value);
    return true;
}

/* Adds a field inline: a call of ngx_list_push() would have to save registers. */
[[gnu::always_inline]] inline bool push(ngx_http_request_t *r, std::string_view name,
                                        ngx_str_t value) {
    auto &list = r->headers_out.headers;
    auto *last = list.last;
    if (last->nelts == list.nalloc) { return push_slowly(list, name, value); }

    set_header(static_cast<ngx_table_elt_t *>(last->elts)[last->nelts++], name, value);
    return true;
}

[[gnu::always_inline]] inline bool print_retry_after(ngx_http_request_t *r, u_char *room,
                                                     uint64_t ms) {
    auto *end = room + kSecondsDigits;
    auto *digits = print_digits(end, seconds(ms));
    return push(r, kRetryAfter, {static_cast<size_t>(end - digits), digits});
}

/* Adds Retry-After if the wait is not known yet, or RateLimit may need a longer one. */
[[gnu::noinline]] bool find_retry_after(ngx_http_request_t *r, Context &ctx) {
    auto ms = ctx.described->retry_after_ms(ctx.now_ms);
    if (ms == kNever) { return true; }

    /* A request that consumes nothing may be admitted before RateLimit's reset. */
    if ((ctx.headers & kHeaderDraft) != 0) {
        ms = std::max(ms, ctx.described->describe(ctx.now_ms).reset_ms);
    }

    return print_retry_after(r, ctx.retry_after, ms);
}

/* The claims that header fields describe, and the one that the X- fields show. */
struct Described {
    Claim *shown; /* claim for the X- fields; nullptr: no claim is described */
    size_t n;
    size_t bytes; /* maximum length of the list members */

    /* Set by print_states(). */
    ngx_str_t remaining;
    ngx_str_t reset; /* empty with inflight= */
};

/* Clients do not see limits in dry run. */
bool is_described(const Claim &claim) { return !limit_of(claim).dry_run; }

/* Collects the claims.  The X- fields show the rejection or, without one, the tightest claim. */
Described described_claims(Context &ctx) {
    Described described;
    described.shown = nullptr;
    described.n = 0;
    described.bytes = 0;

    for (auto &claim : ctx.decided()) {
        if (!is_described(claim)) { continue; }

        described.n++;
        described.bytes += limit_of(claim).zone->quoted.len + kMember;

        if (described.shown == nullptr) {
            described.shown = &claim;
        } else if (ctx.status != Status::kRejected) {
            const Claim two[] = {*described.shown, claim};
            described.shown = tightest(two, 2, ctx.now_ms) == 1 ? &claim : described.shown;
        }
    }

    if (ctx.status == Status::kRejected) { described.shown = ctx.described; }

    return described;
}

/* Sets *text to a list of the members that `print` prints.  Returns false if out of memory. */
template <class Print>
bool print_list(ngx_http_request_t *r, Context &ctx, const Described &described, ngx_str_t *text,
                Print print) {
    auto *p = alloc_bytes(r->pool, described.bytes);
    if (p == nullptr) { return false; }

    text->data = p;

    for (auto &claim : ctx.decided()) {
        if (is_described(claim)) {
            p = p != text->data ? append(p, ", ") : p;
            p = print(p, claim);
        }
    }

    text->len = p - text->data;
    return true;
}

/* Prints RateLimit, such as "one";r=599;t=1. */
bool print_states(ngx_http_request_t *r, Context &ctx, Described &described, ngx_str_t *text) {
    return print_list(r, ctx, described, text, [&](u_char *p, const Claim &claim) {
        const auto verdict = claim.describe(ctx.now_ms);

        ngx_str_t remaining;
        ngx_str_t reset = {};
        p = append(p, view(limit_of(claim).zone->quoted));
        p = append(p, ";r=");
        p = append_number(p, verdict.remaining, &remaining);

        if (!claim.policy->is_in_flight()) {
            p = append(p, ";t=");
            p = append_number(p, seconds(verdict.reset_ms), &reset);
        }

        if (&claim == described.shown) {
            described.remaining = remaining;
            described.reset = reset;
        }

        return p;
    });
}

/* Adds RateLimit-Policy, such as "one";q=600;w=60, and RateLimit, such as "one";r=599;t=1. */
bool add_draft(ngx_http_request_t *r, Context &ctx, const Described &described,
               const ngx_str_t &states) {
    const auto &limit = limit_of(*described.shown);
    auto policy = limit.policy;

    if (described.n > 1 || described.shown->limit != limit.limit || described.shown->is_own
        || policy.len == 0) {
        const auto print = [&](u_char *p, const Claim &claim) {
            return print_policy(p, limit_of(claim).zone, claim.limit, claim.window_ms(ctx.now_ms));
        };

        if (!print_list(r, ctx, described, &policy, print)) { return false; }
    }

    return push(r, kPolicy, policy) && push(r, kState, states);
}

bool add_x(ngx_http_request_t *r, const Described &described) {
    const auto &limit = limit_of(*described.shown);
    auto digits = limit.digits;

    if (described.shown->limit != limit.limit) {
        auto *p = alloc_bytes(r->pool, NGX_INT64_LEN);
        if (p == nullptr) { return false; }

        (void)append_number(p, described.shown->limit, &digits);
    }

    return push(r, kXLimit, digits) && push(r, kXRemaining, described.remaining)
           && (described.reset.len == 0 || push(r, kXReset, described.reset));
}

/* Returns true if we have added the field: its name is one of our texts. */
bool is_ours(const ngx_table_elt_t &h) {
    const auto names = {kRetryAfter, kPolicy, kState, kXLimit, kXRemaining, kXReset};
    return std::any_of(names.begin(), names.end(),
                       [&](auto name) { return bytes(name) == h.key.data; });
}

/* Returns true if an upstream has sent the field, and nobody has changed it: its value is still
 * that of the upstream's response. */
bool is_from_upstream(ngx_http_request_t *r, const ngx_table_elt_t &h) {
    bool found = false;
    if (r->upstream != nullptr) {
        for_each<ngx_table_elt_t>(r->upstream->headers_in.headers,
                                  [&](auto &sent) { found |= sent.value.data == h.value.data; });
    }

    return found;
}

/* Drops fields that have the same names as ours: of an upstream, or our own of a response that
 * another filter has replaced by an error. */
[[gnu::noinline]] void drop_fields(ngx_http_request_t *r, uint8_t headers) {
    for_each<ngx_table_elt_t>(r->headers_out.headers, [=](auto &h) {
        const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
            return std::any_of(names.begin(), names.end(),
                               [&](auto name) { return is_same_name(view(h.key), name); });
        };

        if ((((headers & kHeaderDraft) != 0 && is_one_of({kPolicy, kState}))
             || ((headers & kHeaderX) != 0 && is_one_of({kXLimit, kXRemaining, kXReset})))
            && (is_ours(h) || is_from_upstream(r, h))) {
            h.hash = 0;
        }
    });
}

bool add_fields(ngx_http_request_t *r, Context &ctx) {
    auto described = described_claims(ctx);
    if (described.shown == nullptr) { return true; }

    if (r->upstream != nullptr || ctx.has_fields) { drop_fields(r, ctx.headers); }

    ctx.has_fields = true;

    ngx_str_t states;
    return print_states(r, ctx, described, &states)
           && ((ctx.headers & kHeaderDraft) == 0 || add_draft(r, ctx, described, states))
           && ((ctx.headers & kHeaderX) == 0 || add_x(r, described));
}

/* Of the fields with the name of one of ours, drops those of an upstream, and ours if others stay:
 * the configuration has set them. */
[[gnu::noinline]] void keep_one_of_each(ngx_http_request_t *r) {
    auto &list = r->headers_out.headers;
    for_each<ngx_table_elt_t>(list, [&](auto &ours) {
        if (ours.hash == 0 || !is_ours(ours)) { return; }

        for_each<ngx_table_elt_t>(list, [&](auto &h) {
            if (h.hash != 0 && &h != &ours && is_same_name(view(h.key), view(ours.key))) {
                (is_from_upstream(r, h) ? h : ours).hash = 0;
            }
        });
    });
}

} // namespace

bool push_header(ngx_http_request_t *r, std::string_view name, ngx_str_t value) {
    return push(r, name, value);
}

bool add_retry_after(ngx_http_request_t *r, Context &ctx) {
    const auto ms = ctx.described->known_retry_after_ms();

    /* one comparison for both 0 and kNever */
    if (ms - 1 >= kNever - 1 || (ctx.headers & kHeaderDraft) != 0) {
        return ms == kNever || find_retry_after(r, ctx);
    }

    return print_retry_after(r, ctx.retry_after, ms);
}

bool push_retry_after(ngx_http_request_t *r, u_char *room, uint64_t ms) {
    return print_retry_after(r, room, ms);
}

extern "C" ngx_int_t ngx_http_limit_sliding_header_filter(ngx_http_request_t *r) {
    auto *ctx = r == r->main ? get_ctx(r) : nullptr;
    if (ctx == nullptr || ctx->nclaims == 0) {
        return ngx_http_limit_sliding_next_header_filter(r);
    }

    if ((ctx->headers & ~kHeaderRetryAfter) != 0 && !add_fields(r, *ctx)) { return NGX_ERROR; }

    return ngx_http_limit_sliding_next_header_filter(r);
}

/* Runs after "add_header".  The API adds Retry-After to requests that no limit has decided. */
extern "C" ngx_int_t ngx_http_limit_sliding_late_header_filter(ngx_http_request_t *r) {
    const auto *ctx = get_ctx(r);
    if ((ctx != nullptr && (ctx->has_fields || ctx->status == Status::kRejected))
        || loc_conf(r).api_write == 1) {
        keep_one_of_each(r);
    }

    return ngx_http_limit_sliding_late_next_header_filter(r);
}

} // namespace limit_sliding
