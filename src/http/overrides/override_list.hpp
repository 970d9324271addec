/* Copyright (C) the limit_sliding authors */

/* Lists the overrides of a zone's keys. */

#pragma once

#include <string_view>

#include "core/policy/override.hpp"
#include "http/conf/zone.hpp"
#include "ngx/array.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* An override that a zone has. */
struct ListedLimit {
    ngx_str_t key;  /* as text: an address is one, other keys are any bytes */
    ngx_str_t text; /* the limit as given, as "1000/1h" */
    Override own;
    uint64_t until_s; /* UNIX time when it ends; 0: it does not */
};

/* Adds up to n overrides of a zone that have not ended to a list in the pool, in an
 * order of no meaning, which does not change.  They are those from a place on, or after a
 * key, as requests have it, if that is not empty.  A list looks at so much of the table
 * only, and leaves the place where to go on, 0 if it was at the end.  While the file is
 * compacted, some may be left out.  Returns false if there is no memory. */
bool list_limits(const ZoneConf &zone, std::string_view after, size_t n, ngx_pool_t *pool,
                 Array<ListedLimit> &listed, uint64_t *place);

} // namespace limit_sliding
