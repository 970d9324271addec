/* Copyright (C) the limit_sliding authors */

/* Lists the overrides of a zone's keys. */

#pragma once

#include <string_view>

#include "core/policy/override_line.hpp"
#include "http/conf/zone_conf.hpp"
#include "ngx/containers.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Adds up to n unexpired overrides to a list in the pool, in a fixed but arbitrary order.  Keys
 * that are addresses are listed as text.  The list begins behind the key `after`, as in requests,
 * or at *place if `after` is empty.  A call reads a part of the table at most, and sets *place to
 * the place for the next call; 0: the end.  Overrides may be missing during a compaction.  Returns
 * false if there is no memory. */
bool list_overrides(const ZoneConf &zone, std::string_view after, size_t n, ngx_pool_t *pool,
                    Array<OverrideLine> &listed, uint64_t *place);

} // namespace limit_sliding
