/*
 * Copyright (C) the limit_sliding authors
 */

/* $limit_sliding_client: the part of an address that tells clients apart. */

#ifndef LIMIT_SLIDING_HTTP_CLIENT_ADDRESS_HPP
#define LIMIT_SLIDING_HTTP_CLIENT_ADDRESS_HPP

#include "http/configuration.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t client_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
                          uintptr_t data);

/*
 * Tells the zones of a place's limits to which prefixes their clients are cut
 * there.  The longest prefixes of several places count: they leave the shorter
 * ones' networks as they are, so the API can be given any key of a zone.
 */
void learn_prefixes(ngx_conf_t *cf, const LocConf &conf);

/*
 * Leaves the last 4 bytes of an address of IPv4 in IPv6's form; others, of 4 or
 * 16 bytes, stay.  Returns that one of the prefixes which it is to be cut to.
 */
ngx_uint_t client_part(ngx_str_t *address, ngx_uint_t ipv4, ngx_uint_t ipv6);

/* Copies an address with all bits beyond the prefix 0. */
void cut_to_prefix(u_char *dst, ngx_str_t *address, ngx_uint_t prefix);

} // namespace limit_sliding

#endif
