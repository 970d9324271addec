/* Copyright (C) the limit_sliding authors */

#include "http/request/limit_claim.hpp"

#include <new>

#include "core/limiter/limiter.hpp"
#include "http/response/log.hpp"
#include "http/values/rates_and_costs.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* The cleanup handler of a mark: the request was counted as not limited by the zone in `data`. */
void is_unlimited(void *) {}

/* Sets the cost of a claim, unless the value is empty or invalid. */
ngx_int_t evaluate_cost(ngx_http_request_t *r, const Limit &limit, Claim &claim) {
    ngx_str_t text;
    if (get_text(r, limit.cost_value, &text) != NGX_OK) { return NGX_ERROR; }

    if (text.len != 0 && !parse_cost(text, claim.cost)) {
        log_bad_value(r, *limit.zone, "cost", text);
    }

    return NGX_OK;
}

/* Sets the fields of a claim that do not depend on the rate. */
[[gnu::always_inline]] inline ngx_int_t complete(ngx_http_request_t *r, const Limit &limit,
                                                 Claim &claim) {
    if (limit.cost_value != nullptr && evaluate_cost(r, limit, claim) != NGX_OK) {
        return NGX_ERROR;
    }

    if (limit.settles && claim.cost == 0) { claim.reserve_nothing(); }

    if (!limit.zone->is_remote()) { claim.fit_core(); }

    return NGX_OK;
}

/* Stores the limit of a request's key for the API, which has no request to evaluate the
 * variable. */
void remember(const Limit &limit, const Claim &claim, const Override &own) {
    limit.zone->memory.aside.variable_overrides->set(claim.hash, own);
}

/* Completes the claim of a request by a rate with a window, or by the rate "0".  Returns
 * NGX_DECLINED if the rate is neither. */
ngx_int_t complete_own(ngx_http_request_t *r, const Limit &limit, const ngx_str_t &rate,
                       Claim &claim) {
    const auto &zone = *limit.zone;
    Override own;
    if (!own.parse(view(rate), zone.policy, limit.limit_max)) { return NGX_DECLINED; }

    remember(limit, claim, own);
    return complete(r, limit, claim) == NGX_OK && apply_override(r->pool, zone, own, claim)
               ? NGX_OK
               : NGX_ERROR;
}

/* Completes the claim of a limit with variable rates, by the first rate that is neither empty nor
 * invalid.  Returns NGX_DECLINED if the request is not limited. */
ngx_int_t complete_rated(ngx_http_request_t *r, const Limit &limit, Claim &claim) {
    auto is_off = false;

    for (auto *const *rate = limit.rates; *rate != nullptr; rate++) {
        ngx_str_t text;
        if (get_text(r, *rate, &text) != NGX_OK) { return NGX_ERROR; }

        if (text.len == 0) { continue; }

        is_off = view(text) == "off";
        if (is_off || parse_rate(text, claim.policy->window_ms, limit.limit_max, claim.limit)) {
            break;
        }

        const auto rc = complete_own(r, limit, text, claim);
        if (rc != NGX_DECLINED) { return rc; }

        log_bad_value(r, *limit.zone, limit.zone->policy.is_in_flight() ? "inflight" : "rate",
                      text);
    }

    if (is_off || claim.limit == 0) {
        remember(limit, claim, {kLimitOff, {}});
        return decline(r, *limit.zone);
    }

    remember(limit, claim, {claim.limit, {}});
    claim.is_own |= claim.limit != limit.limit;
    return complete(r, limit, claim);
}

} // namespace

ngx_int_t decline(ngx_http_request_t *r, ZoneConf &zone) {
    for (const auto *mark = r->pool->cleanup; mark != nullptr; mark = mark->next) {
        if (mark->handler == is_unlimited && mark->data == &zone) { return NGX_DECLINED; }
    }

    auto *mark = ngx_pool_cleanup_add(r->pool, 0);
    if (mark == nullptr) { return NGX_ERROR; }

    mark->handler = is_unlimited;
    mark->data = &zone;
    count_request(zone, kCountUnlimited);
    return NGX_DECLINED;
}

ngx_int_t evaluate(ngx_http_request_t *r, const Limit &limit, Claim &claim) {
    return limit.rates[0] != nullptr ? complete_rated(r, limit, claim) : complete(r, limit, claim);
}

bool apply_override(ngx_pool_t *pool, const ZoneConf &zone, const Override &own, Claim &claim) {
    TermsRoom *room = nullptr;
    if (needs_room(own, zone.policy)) {
        room = alloc<TermsRoom>(pool);
        if (room == nullptr) { return false; }
    }

    (void)apply_override(claim, zone.policy, own, room);
    return true;
}

ngx_int_t apply_own(ngx_http_request_t *r, ZoneConf &zone, const Override &own, Claim &claim) {
    /* Most overrides are numbers alone, and most requests have no rates. */
    if (terms_of(own) == Terms::kLimited && !own.window.is_given() && !claim.is_own) {
        claim.limit = own.limit;
        claim.is_own = true;
        return NGX_OK;
    }

    if (terms_of(own) == Terms::kUnlimited) { return decline(r, zone); }

    return apply_override(r->pool, zone, own, claim) ? NGX_OK : NGX_ERROR;
}

Hold *create_hold(ngx_http_request_t *r, ZoneConf &zone) {
    struct Ending {
        ngx_pool_cleanup_t cleanup;
        Hold hold;
    };

    auto *memory = alloc_inline(r->pool, sizeof(Ending));
    if (memory == nullptr) { return nullptr; }

    auto *ending = new (memory) Ending{{}, {&zone.worker.holdings}};
    ending->cleanup.handler = [](void *data) { static_cast<Hold *>(data)->release(); };
    ending->cleanup.data = &ending->hold;
    ending->cleanup.next = r->pool->cleanup;
    r->pool->cleanup = &ending->cleanup;
    return &ending->hold;
}

} // namespace limit_sliding
