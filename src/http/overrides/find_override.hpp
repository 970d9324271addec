/* Copyright (C) the limit_sliding authors */

#pragma once

#include "core/facts/overrides.hpp"
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

} // namespace limit_sliding
