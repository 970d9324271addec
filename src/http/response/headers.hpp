/* Copyright (C) the limit_sliding authors */

/* Header fields of responses. */

#pragma once

#include <string_view>

#include "http/response/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Installs the filter that tells a client its limits, as they were when the
 * request was decided.  Called if some place wants that, or may replace a
 * rejection by a page. */
void init_headers();

/* Adds a field, of a name and value that live as long as the request; false:
 * no memory. */
bool push_header(ngx_http_request_t *r, std::string_view name, ngx_str_t value);

/* Tells the client of a rejected request when to try again, if there is such a
 * time; false: no memory. */
bool add_retry_after(ngx_http_request_t *r, Context &ctx);

/* Tells it so many ms. */
bool push_retry_after(ngx_http_request_t *r, Context &ctx, uint64_t ms);

} // namespace limit_sliding
