/*
 * Copyright (C) the limit_sliding authors
 */

/* One key of a zone in Redis. */

#ifndef LIMIT_SLIDING_HTTP_API_KEY_IN_REDIS_HPP
#define LIMIT_SLIDING_HTTP_API_KEY_IN_REDIS_HPP

#include "http/api/key.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t key_remote(ngx_http_request_t *r, KeyRequest *key);

} // namespace limit_sliding

#endif
