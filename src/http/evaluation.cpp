/* Copyright (C) the limit_sliding authors */

#include "http/evaluation.hpp"

#include "http/log.hpp"
#include "http/rate.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* Takes the first value that is neither empty nor invalid. */
ngx_int_t get_rate(ngx_http_request_t *r, Limit *limit, Claim *claim) {
    for (Expression **rate = limit->rates; *rate != nullptr; rate++) {
        ngx_str_t text;
        if (get_text(r, *rate, &text) != NGX_OK) { return NGX_ERROR; }

        if (text.len == 0) { continue; }

        if (view(text) == "off") { return NGX_DECLINED; }

        if (parse_rate(text, claim->policy->window_ms, &claim->limit)) { return NGX_OK; }

        log_bad_value(r, *limit->zone, "rate", text);
    }

    return claim->limit != 0 ? NGX_OK : NGX_DECLINED;
}

/* Leaves the claim its cost where the value is empty or invalid. */
ngx_int_t get_cost(ngx_http_request_t *r, Limit *limit, Claim *claim) {
    if (limit->cost_value == nullptr) { return NGX_OK; }

    ngx_str_t text;
    if (get_text(r, limit->cost_value, &text) != NGX_OK) { return NGX_ERROR; }

    if (text.len == 0) { return NGX_OK; }

    ngx_int_t cost = ngx_atoi(text.data, text.len);
    if (cost == NGX_ERROR || cost > ngx_int_t{NGX_MAX_UINT32_VALUE}) {
        log_bad_value(r, *limit->zone, "cost", text);
        return NGX_OK;
    }

    claim->cost = static_cast<uint32_t>(cost);
    return NGX_OK;
}

} // namespace

ngx_int_t evaluate_claim(ngx_http_request_t *r, Limit *limit, Claim *claim) {
    ngx_int_t rc = get_rate(r, limit, claim);

    /* The API has no request to evaluate variables for. */
    if (limit->rates[0] != nullptr && rc != NGX_ERROR) {
        limit->zone->memory.aside.variable_limits->set(claim->hash,
                                                       rc == NGX_OK ? claim->limit : kUnlimited);
    }

    if (rc != NGX_OK) { return rc; }

    claim->purpose = limit->count_status.empty() ? Purpose::kConsume : Purpose::kLook;
    return get_cost(r, limit, claim);
}

} // namespace limit_sliding
