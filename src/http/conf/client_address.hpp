/* Copyright (C) the limit_sliding authors */

/* $limit_sliding_client: the prefix of an address that identifies the client. */

#pragma once

#include "http/conf/configuration.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t client_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data);

/* Collects the prefixes of $limit_sliding_client in a location: in the zones of its limits and,
 * if the location has the API, in MainConf::api_clients.  The longest prefixes of all locations
 * are kept, because the API then leaves a key with shorter prefixes as it is. */
void learn_prefixes(ngx_conf_t *cf, const LocConf &conf);

/* A zone that no location uses gets the API's longest prefixes, else the defaults, so it finds the
 * keys the API wrote. */
void set_unused_prefixes(const MainConf &main);

/* Returns the prefix in bits for an address of 4 or 16 bytes, either `ipv4` or `ipv6`.  Reduces
 * an IPv4-mapped address to its last 4 bytes. */
ngx_uint_t client_part(ngx_str_t *address, ngx_uint_t ipv4, ngx_uint_t ipv6);

/* Copies an address, and clears the bits behind the prefix. */
void cut_to_prefix(u_char *dst, ngx_str_t *address, ngx_uint_t prefix);

} // namespace limit_sliding
