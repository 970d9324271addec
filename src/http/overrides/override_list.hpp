/* Copyright (C) the limit_sliding authors */

/* Lists the overrides of a zone's keys. */

#pragma once

#include <string_view>

#include "core/policy/override.hpp"
#include "http/conf/zone.hpp"
#include "ngx/array.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

struct ListedLimit {
    ngx_str_t key;  /* as text: addresses are printed, other keys may have any bytes */
    ngx_str_t text; /* the limit as given, such as "1000/1h" */
    Override own;
    uint64_t until_s; /* UNIX time of the expiry; 0: never */
};

/* Adds up to n unexpired overrides to a list in the pool, in a fixed but arbitrary order.  The
 * list begins behind the key `after`, as in requests, or at *place if `after` is empty.  A call
 * reads a part of the table, and sets *place to the place for the next call; 0: the end.
 * Overrides may be missing during a compaction.  Returns false if there is no memory. */
bool list_limits(const ZoneConf &zone, std::string_view after, size_t n, ngx_pool_t *pool,
                 Array<ListedLimit> &listed, uint64_t *place);

} // namespace limit_sliding
