/* Copyright (C) the limit_sliding authors */

#pragma once

#include "http/conf/zone.hpp"

namespace limit_sliding {

/* Answer GET with a page of the overrides of a zone in this node's memory, or in Redis. */
ngx_int_t send_limits(ngx_http_request_t *r, ZoneConf &zone);
ngx_int_t send_limits_of_redis(ngx_http_request_t *r, ZoneConf &zone);

} // namespace limit_sliding
