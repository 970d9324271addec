/* Copyright (C) the limit_sliding authors */

/* A page that shows the API's figures live. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t send_dashboard(ngx_http_request_t *r);

} // namespace limit_sliding
