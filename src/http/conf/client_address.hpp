/* Copyright (C) the limit_sliding authors */

/* $limit_sliding_client: the part of an address that tells clients apart. */

#pragma once

#include "http/conf/configuration.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t client_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data);

/* Tells the zones of a place's limits the prefixes of $limit_sliding_client
 * there.  A zone keeps the longest ones of all places, since these leave keys
 * with shorter prefixes as they are when the API is asked for them.  Those of the
 * locations of the API are kept as well. */
void learn_prefixes(ngx_conf_t *cf, const LocConf &conf);

/* Gives the zones that no place uses the longest prefixes of the API's locations, or the
 * default ones: what the API writes is what a reload reads. */
void set_unused_prefixes(const MainConf &main);

/* Returns the prefix that applies to an address of 4 or 16 bytes.  An IPv4
 * address in IPv6's form is reduced to its last 4 bytes before. */
ngx_uint_t client_part(ngx_str_t *address, ngx_uint_t ipv4, ngx_uint_t ipv6);

/* Copies an address, and clears the bits beyond the prefix. */
void cut_to_prefix(u_char *dst, ngx_str_t *address, ngx_uint_t prefix);

} // namespace limit_sliding
