/* Copyright (C) the limit_sliding authors */

/* The claim of a limit: what the request, and the override of its key, make of the limit in the
 * configuration. */

#pragma once

#include "http/conf/configuration.hpp"
#include "http/overrides/find_override.hpp"
#include "http/response/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Counts a request that reaches a limit of the zone without being limited, but only once if the
 * request is redirected.  Returns NGX_DECLINED, or NGX_ERROR if there is no memory. */
[[gnu::cold]] ngx_int_t decline(ngx_http_request_t *r, ZoneConf &zone);

/* Completes the claim of a limit with a variable rate or cost.  Returns NGX_DECLINED if the request
 * is not limited. */
ngx_int_t evaluate(ngx_http_request_t *r, const Limit &limit, Claim &claim);

/* Applies an override that is not "off" to a claim.  Returns false if the pool has no memory. */
bool apply_override(ngx_pool_t *pool, const ZoneConf &zone, const Override &own, Claim &claim);

/* Applies the override of the claim's key.  Returns NGX_DECLINED if the key is not limited. */
ngx_int_t apply_own(ngx_http_request_t *r, ZoneConf &zone, const Override &own, Claim &claim);

/* Creates the hold of a claim, which ends with the request, whatever way that ends.  Returns
 * nullptr if there is no memory. */
Hold *create_hold(ngx_http_request_t *r, ZoneConf &zone);

} // namespace limit_sliding
