/*
 * Copyright (C) the limit_sliding authors
 */

/* Responses of the API. */

#ifndef LIMIT_SLIDING_HTTP_API_RESPONSE_HPP
#define LIMIT_SLIDING_HTTP_API_RESPONSE_HPP

#include "http/api/writer.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

constexpr char kVersion[] = "0.1.0";

ngx_int_t api_header(ngx_http_request_t *r, char *name, char *value);
ngx_int_t api_send(ngx_http_request_t *r, ngx_uint_t status, char *type,
                   Writer *text);
ngx_int_t ngx_cdecl api_error(ngx_http_request_t *r, ngx_uint_t status,
                              const char *fmt, ...);

} // namespace limit_sliding

#endif
