/*
 * Copyright (C) the limit_sliding authors
 */

/* Limits that count responses. */

#ifndef LIMIT_SLIDING_HTTP_COUNT_STATUS_HPP
#define LIMIT_SLIDING_HTTP_COUNT_STATUS_HPP

#include "http/limit_set.hpp"
#include "http/parameter.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

char *count_status(ngx_conf_t *cf, Limit *limit, Param *param);
ngx_int_t count_handler(ngx_http_request_t *r);

} // namespace limit_sliding

#endif
