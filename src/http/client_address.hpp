/*
 * Copyright (C) the limit_sliding authors
 */

/* $limit_sliding_client. */

#ifndef LIMIT_SLIDING_HTTP_CLIENT_ADDRESS_HPP
#define LIMIT_SLIDING_HTTP_CLIENT_ADDRESS_HPP

#include "http/configuration.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t client_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
                          uintptr_t data);
void learn_prefixes(ngx_conf_t *cf, LocConf *conf);
ngx_uint_t client_part(ngx_str_t *address, ngx_uint_t ipv4, ngx_uint_t ipv6);
void cut_to_prefix(u_char *dst, ngx_str_t *address, ngx_uint_t prefix);

} // namespace limit_sliding

#endif
