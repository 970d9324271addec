/* Copyright (C) the limit_sliding authors */

/* Parts of header fields that do not depend on the request. */

#pragma once

#include "http/conf/zone_conf.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Maximum bytes of a list member besides the zone's name: two numbers. */
constexpr auto kMember = sizeof(";q=;w=, ") + 2 * NGX_INT64_LEN;

/* Sets `quoted` to the name as a string of a structured field; false: out of memory. */
bool quote_name(ngx_pool_t *pool, ZoneConf &zone);

/* Prints a member of RateLimit-Policy, such as "one";q=600;w=60, and returns its end. */
u_char *print_policy(u_char *p, ZoneConf *zone, uint64_t limit, uint64_t window_ms);

/* Prints a number, sets *text to its digits, and returns their end.  There must be room for
 * NGX_INT64_LEN bytes. */
u_char *append_number(u_char *p, uint64_t n, ngx_str_t *text);

} // namespace limit_sliding
