/* Copyright (C) the limit_sliding authors */

/* Header fields of responses. */

#pragma once

#include <string_view>

#include "http/response/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Adds a field.  Name and value must live as long as the request.  False: out of memory. */
bool push_header(ngx_http_request_t *r, std::string_view name, ngx_str_t value);

/* Adds Retry-After to a rejection, unless no retry can succeed; false: out of memory. */
bool add_retry_after(ngx_http_request_t *r, Context &ctx);

/* Adds Retry-After for a wait in ms, in seconds rounded up.  There must be room for kSecondsDigits
 * bytes, which live as long as the request.  False: out of memory. */
bool push_retry_after(ngx_http_request_t *r, u_char *room, uint64_t ms);

} // namespace limit_sliding
