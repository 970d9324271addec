/* Copyright (C) the limit_sliding authors */

/* The handlers of phases. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Runs in the access phase, which NGINX runs for main requests only. */
ngx_int_t access_handler(ngx_http_request_t *r);

/* Runs in the precontent phase, if any limit is after_auth. */
ngx_int_t after_auth_handler(ngx_http_request_t *r);

/* Runs in the log phase, if any limit counts by status.  The request is over,
 * so whether the limit has room for it still makes no difference. */
ngx_int_t count_handler(ngx_http_request_t *r);

} // namespace limit_sliding
