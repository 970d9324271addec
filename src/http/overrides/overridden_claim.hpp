/* Copyright (C) the limit_sliding authors */

/* Claims with an override of the key or of the request. */

#pragma once

#include "core/policy/override.hpp"
#include "http/conf/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Applies an override, which is set and not "off", to a claim of the zone.  An override of "0"
 * rejects the claim for ever.  Returns false if there is no memory. */
bool apply_override(ngx_pool_t *pool, const ZoneConf &zone, const Override &own, Claim &claim);

} // namespace limit_sliding
