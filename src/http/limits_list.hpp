/* Copyright (C) the limit_sliding authors */

/* Lists the own limits of a zone's keys. */

#pragma once

#include <string_view>

#include "core/own_limit.hpp"
#include "http/zone.hpp"
#include "ngx/array.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* An own limit that a zone has. */
struct ListedLimit {
    ngx_str_t key;  /* as text: an address is one, other keys are any bytes */
    ngx_str_t text; /* the limit as given, as "1000/1h" */
    OwnLimit own;
    uint64_t until_s; /* UNIX time when it ends; 0: it does not */
};

/* Adds up to n own limits of a zone that have not ended to a list in the pool, in an
 * order of no meaning, which does not change.  They are those after a key, as requests
 * have it, or the first ones if that is empty.  While the file is compacted, some may be
 * left out.  Returns false if there is no memory. */
bool list_limits(const ZoneConf &zone, std::string_view after, size_t n, ngx_pool_t *pool,
                 Array<ListedLimit> &listed);

} // namespace limit_sliding
