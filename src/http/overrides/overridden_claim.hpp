/* Copyright (C) the limit_sliding authors */

/* Claims with an override of the key or of the request. */

#pragma once

#include "core/policy/override.hpp"
#include "http/conf/zone_conf.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Finds the override of a key in this node's memory. */
[[gnu::always_inline]] inline bool find_override(const ZoneConf &zone, uint64_t hash,
                                                 Override *own) {
    const Overrides &overrides = *zone.memory.aside.overrides;
    const auto now_s = [] { return ngx_time(); };
    return overrides.count() != 0 && overrides.find(hash, now_s, own);
}

/* Memory that a claim with an override points to. */
struct OverriddenParts {
    Policy policy;   /* of a window that is not the zone's */
    Verdict verdict; /* of an override of "0" */
};

/* Applies an override, which is set and not "off", to a claim of the zone.  An override of "0"
 * rejects the claim for ever.  The parts must live as long as the claim. */
void apply_override(const ZoneConf &zone, const Override &own, Claim &claim,
                    OverriddenParts &parts);

/* The same with memory of a pool.  Returns false if there is no memory. */
bool apply_override(ngx_pool_t *pool, const ZoneConf &zone, const Override &own, Claim &claim);

} // namespace limit_sliding
