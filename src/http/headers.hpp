/* Copyright (C) the limit_sliding authors */

/* Header fields of responses. */

#pragma once

#include <string_view>

#include "ngx/ngx.hpp"

namespace limit_sliding {

constexpr std::string_view kRetryAfter = "Retry-After";

/* Installs the filter that tells a client its limits, as they were when the
 * request was decided.  Called if some place wants that, or may replace a
 * rejection by a page. */
void init_headers();

/* Adds a field, of a name and value that live as long as the request; false:
 * no memory. */
bool push_header(ngx_http_request_t *r, std::string_view name, const ngx_str_t &value);

} // namespace limit_sliding
