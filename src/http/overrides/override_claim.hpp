/* Copyright (C) the limit_sliding authors */

/* Claims of keys, and of requests, that have a limit of their own. */

#pragma once

#include "core/policy/override.hpp"
#include "http/conf/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Makes a claim on a key of the zone one of this limit, which is set and not
 * "off".  One of "0" is decided by that: rejected, for ever.  False: no memory. */
bool set_own(ngx_pool_t *pool, const ZoneConf &zone, const Override &own, Claim &claim);

} // namespace limit_sliding
