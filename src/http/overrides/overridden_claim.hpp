/* Copyright (C) the limit_sliding authors */

/* Claims with an override of the key or of the request. */

#pragma once

#include "core/policy/terms.hpp"
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

using OverriddenParts = TermsRoom;

/* Applies an override to a claim of the zone. */
inline void apply_override(const ZoneConf &zone, const Override &own, Claim &claim,
                           OverriddenParts &parts) {
    (void)apply_override(claim, zone.policy, own, &parts);
}

} // namespace limit_sliding
