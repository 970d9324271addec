/* Copyright (C) the limit_sliding authors */

/* Parts of header fields that do not depend on the request. */

#pragma once

#include "http/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* The most bytes that a member takes beside the zone's name: two numbers. */
constexpr auto kMember = sizeof(";q=;w=, ") + 2 * NGX_INT64_LEN;

/* Sets the zone's name as a string of a structured field; false: no memory. */
bool quote_name(ngx_pool_t *pool, ZoneConf &zone);

/* Prints a member of RateLimit-Policy, as "one";q=600;w=60; returns its end. */
u_char *print_policy(u_char *p, ZoneConf *zone, uint64_t limit);

/* Prints a number, and sets *text to its digits; returns their end. */
u_char *append_number(u_char *p, uint64_t n, ngx_str_t *text);

} // namespace limit_sliding
